"""What the next run would do to derived tables, as values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class GoldStep(StrEnum):
    """What becomes of a derived table."""

    MAKE = "make"
    REBUILD = "rebuild"
    """Another declaration has computed what is there."""
    FOLLOW = "follow"
    """It has everything up to some version of its sources, and goes on from there."""


@dataclass(frozen=True)
class DerivedTablePlan:
    """One derived table."""

    table: str
    step: GoldStep
    sources: int
    """How many tables it is derived from."""
    read_bytes: int
    """How much of them is read to make or rebuild it: the files that are there by now."""


@dataclass(frozen=True)
class UnknownColumn:
    """A column that a declaration uses and no table has: it is null."""

    column: str
    meant: str | None
    """One that there is, with a name much like it."""


@dataclass(frozen=True)
class MissingColumn:
    """A column that a declaration uses and that only some tables have."""

    column: str
    tables: tuple[str, ...]
    """Those in which it is null."""


@dataclass(frozen=True)
class DerivedPlan:
    """One declaration of `gold`, and what becomes of its tables."""

    name: str
    how: str
    """How its tables are kept up to date."""
    tables: tuple[DerivedTablePlan, ...]
    unknown: tuple[UnknownColumn, ...] = ()
    missing: tuple[MissingColumn, ...] = ()

    def those_to(self, step: GoldStep) -> tuple[DerivedTablePlan, ...]:
        return tuple(one for one in self.tables if one.step is step)

    def as_record(self) -> dict[str, Any]:
        return {
            **vars(self),
            "missing": [{**vars(one), "count": len(one.tables)} for one in self.missing],
        }
