"""What becomes of records that were taken out of quarantine, noted before anything is committed.

A replay that is cut short is completed from this note: whatever has changed meanwhile, the same
rows are settled in the same way.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.quarantine.quarantine_state import QuarantineState
from headgate.quarantine.quarantined import QUARANTINE

SETTLED = pa.schema(
    [
        QUARANTINE.field(name)
        for name in ("id", "state", "reason", "detail", "route", "schema_id", "in_bronze", "_batch")
    ]
)
_ABOUT = b"headgate"


@dataclass(frozen=True)
class Settlement:
    """The outcome for the records of one portion."""

    version: int
    state: QuarantineState
    """What those are that left the quarantine."""
    at: datetime
    taken: int
    remaining: Mapping[str, int]
    """How many stay in quarantine, for which reason."""
    wanted: Mapping[str, str]
    """Which were asked for, as the ledger tells it."""
    rows: pa.Table
    """The rows of the quarantine that change, as they shall be."""

    @property
    def left(self) -> int:
        return self.taken - sum(self.remaining.values())


class SettlementNote:
    """Holds one settlement, the newest of a pipeline."""

    def __init__(self, lake: str, pipeline: str) -> None:
        self._path = Path(lake, "_staged", f"{pipeline}.parquet")

    def write(self, settlement: Settlement) -> None:
        about = {**vars(settlement), "at": settlement.at.isoformat()}
        del about["rows"]
        noted = settlement.rows.replace_schema_metadata({_ABOUT: json.dumps(about)})
        self._path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self._path.with_suffix(".part")
        pq.write_table(noted, unfinished)
        os.replace(unfinished, self._path)

    def read(self, version: int) -> Settlement | None:
        """That of one version, if it is the one that is held."""
        try:
            rows = pq.ParquetFile(self._path).read()
        except FileNotFoundError:
            return None
        about: dict[str, Any] = json.loads(rows.schema.metadata[_ABOUT])
        about["state"] = QuarantineState(about["state"])
        about["at"] = datetime.fromisoformat(about["at"])
        if about["version"] != version:
            return None
        return Settlement(**about, rows=rows.replace_schema_metadata(None))

    def clear(self) -> None:
        self._path.unlink(missing_ok=True)
