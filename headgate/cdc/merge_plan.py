"""What a task is told about the tables that it merges, and what it tells of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from headgate.lake.ledger_entries import MergeEntry

Engine = Literal["delta-rs", "spark"]


@dataclass(frozen=True)
class MergePlan:
    """One source table: its log, and what is made of it."""

    lake: str
    log: str
    merged: str | None
    history: str | None
    tombstones: str
    app: str
    """Whose mark in a table says up to which version of the log it has everything."""
    metadata: bool = True
    key: Sequence[str] | None = None
    """Declared by the pipeline, where changes do not name one."""
    horizon_seconds: float = 0
    spark_above: int = 2 << 30
    in_memory_up_to: int = 16 << 20
    """Bytes of files of a table that is small enough to be merged in memory."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> MergePlan:
        return cls(**json.loads(text))


@dataclass(frozen=True)
class TableMerged:
    """A merged or history table has everything that its log had."""

    table: str
    log: str
    log_version: int
    version: int
    engine: Engine
    changes: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    made: bool = False
    append_only: bool = False

    @property
    def entry(self) -> MergeEntry:
        """The row of the ledger."""
        return MergeEntry(
            self.table,
            rows=self.changes,
            table_version=self.version,
            log=self.log,
            log_version=self.log_version,
            engine=self.engine,
            inserted=self.inserted,
            updated=self.updated,
            deleted=self.deleted,
        )


@dataclass(frozen=True)
class ForSpark:
    """A table that is too large for one task: the folded changes wait in a file."""

    plan: MergePlan
    table: str
    log_version: int
    folded: str | None
    """None where the whole log has to be folded."""
    is_history: bool = False
