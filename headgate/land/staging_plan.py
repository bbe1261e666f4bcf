"""What the driver tells the executors about a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headgate.envelope.opened import Envelope
from headgate.pipeline import Registry
from headgate.route.table_names import TableNames


@dataclass(frozen=True)
class StagingPlan:
    """Small, picklable, without secrets: those are read where they are used."""

    lake: str
    names: TableNames
    envelope: Envelope
    registry: Registry
    version: int
    known_tables: frozenset[str]
    max_tables: int
    max_record_bytes: int
    only_tables: frozenset[str] | None = None
    """The tables that may be written, once it is known that not all can be."""

    @property
    def room(self) -> int:
        """How many tables may still be made."""
        return max(0, self.max_tables - len(self.known_tables))

    def limited_to(self, new_tables: Sequence[str]) -> StagingPlan:
        return replace(self, only_tables=self.known_tables | frozenset(new_tables[: self.room]))

    def may_write(self, table: str, made: set[str]) -> bool:
        """Whether a task may write to this table, given those it has made itself."""
        if self.only_tables is not None:
            return table in self.only_tables
        return table in self.known_tables or table in made or len(made) < self.room
