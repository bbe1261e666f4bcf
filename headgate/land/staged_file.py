"""A Parquet file that an executor wrote and that no commit names yet."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa


@dataclass(frozen=True)
class StagedFile:
    """All that a commit needs to know of a file, so that nobody has to open it again."""

    table: str
    path: str
    """Relative to the table's folder."""
    size: int
    rows: int
    statistics: str
    """Row count, minima, maxima and null counts, as Delta's log has them."""
    schema_bytes: bytes
    route: str | None = None
    schema_ids: tuple[int, ...] = ()
    partition: Mapping[str, str] | None = None
    reasons: Mapping[str, int] | None = None
    """In quarantine: how many records for which reason."""

    @property
    def schema(self) -> pa.Schema:
        return pa.ipc.read_schema(pa.py_buffer(self.schema_bytes))

    def to_json(self) -> str:
        schema = base64.b64encode(self.schema_bytes).decode()
        return json.dumps({**vars(self), "schema_bytes": schema})

    @classmethod
    def from_json(cls, text: str) -> StagedFile:
        record: dict[str, Any] = json.loads(text)
        record["schema_bytes"] = base64.b64decode(record["schema_bytes"])
        record["schema_ids"] = tuple(record["schema_ids"])
        return cls(**record)
