"""A Parquet file that an executor wrote and that no commit names yet."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from headgate.land.checked import Checked
from headgate.land.withheld import Withheld


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
    new_schemas: Mapping[str, str] | None = None
    """Columns of the schemas that the table has not met before, by id."""
    unknown_fields: int = 0
    """Rows whose payloads had fields that their own schema does not have."""
    withheld: tuple[Withheld, ...] = ()
    """What the contract kept out of this table, or of those whose records are in quarantine."""
    expectations: tuple[Checked, ...] = ()
    """How rows fared by the rules of this table, or of those whose records are in quarantine."""
    dropped: tuple[str, ...] = ()
    """Columns of the table that its newest rows are known to have no more."""
    lineages: tuple[str, ...] = ()
    """Of changes: the series of logs in which their positions count, the earliest first."""

    @property
    def schema(self) -> pa.Schema:
        return _schema(self.schema_bytes)

    @property
    def met(self) -> dict[int, pa.Schema]:
        """The new schemas by id, the oldest first."""
        known = {int(one): _read(columns) for one, columns in (self.new_schemas or {}).items()}
        return dict(sorted(known.items()))

    def to_json(self) -> str:
        schema = base64.b64encode(self.schema_bytes).decode()
        parts = {
            "schema_bytes": schema,
            "withheld": [vars(one) for one in self.withheld],
            "expectations": [vars(one) for one in self.expectations],
        }
        return json.dumps({**vars(self), **parts})

    @classmethod
    def from_json(cls, text: str) -> StagedFile:
        record: dict[str, Any] = json.loads(text)
        record["schema_bytes"] = base64.b64decode(record["schema_bytes"])
        record["schema_ids"] = tuple(record["schema_ids"])
        record["lineages"] = tuple(record.get("lineages", ()))
        record["dropped"] = tuple(record.get("dropped", ()))
        record["withheld"] = tuple(
            Withheld(**{**one, "schema_ids": tuple(one["schema_ids"])})
            for one in record.get("withheld", ())
        )
        record["expectations"] = tuple(Checked(**one) for one in record.get("expectations", ()))
        return cls(**record)


def written(schema: pa.Schema) -> str:
    """Columns with what they remember, as text."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def _read(columns: str) -> pa.Schema:
    return _schema(base64.b64decode(columns))


@lru_cache(maxsize=10_000)
def _schema(written: bytes) -> pa.Schema:
    """Files of a table mostly have the same columns."""
    return pa.ipc.read_schema(pa.py_buffer(written))
