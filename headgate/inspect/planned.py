"""What would happen, as values: tables, and schemas that have none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from headgate.engine.land_table import Asked
from headgate.registry.registry import SubjectVersion
from headgate.schema.changes import CreateTable, Outcome, SchemaChange


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


@dataclass(frozen=True)
class UnusableSchema:
    """A schema that no record can be decoded with: all of them would be quarantined."""

    schema: SubjectVersion
    tables: tuple[str, ...]
    """Where they would have gone, as far as that is known."""
    reason: str
    detail: str


@dataclass(frozen=True)
class TablePlan:
    """One table, and what the newest schemas would do to it."""

    table: str
    route: str | None
    exists: bool
    schemas: tuple[SubjectVersion, ...]
    """The newest of its subjects; none where the registry no longer knows them."""
    changes: tuple[Asked, ...] = ()
    as_before: tuple[Asked, ...] = ()
    """What the contract would keep out of it once more; the ledger has it already."""
    rewritten_bytes: int = 0
    """How much would be written anew to widen columns."""
    columns: tuple[str, ...] = ()
    """Those that it would have by then; none where no schema asks anything of it."""

    @property
    def is_created(self) -> bool:
        return any(
            isinstance(one.change, CreateTable) and one.change.outcome is Outcome.APPLIED
            for one in self.changes
        )

    def as_record(self) -> dict[str, Any]:
        return {
            **{name: value for name, value in vars(self).items() if name != "columns"},
            "changes": [asked_record(one) for one in self.changes],
            "as_before": [asked_record(one) for one in self.as_before],
        }


@dataclass(frozen=True)
class PlanSummary:
    """The plan in numbers."""

    tables: int
    created: int
    changed: int
    kept_apart: int
    """Columns."""
    discarded: int
    """Fields whose values would be left out."""
    quarantined: int
    """Fields and tables whose records would be quarantined."""
    refused: int
    """Schemas of which no record would land."""
    as_before: int
    derived_made: int = 0
    derived_rebuilt: int = 0


@dataclass(frozen=True)
class Plan:
    """What the newest registered schemas would do if their records came now."""

    pipeline: str
    tables: tuple[TablePlan, ...]
    unusable: tuple[UnusableSchema, ...]
    without_table: tuple[SubjectVersion, ...]
    """Schemas that no table has met, and whose table is named by the records alone."""
    derived: tuple[DerivedPlan, ...] = ()
    """The declarations of `gold`."""

    @property
    def summary(self) -> PlanSummary:
        outcomes = [one.change.outcome for one in self._asked()]
        refused = {
            key
            for one in self._asked()
            if one.change.outcome is Outcome.REFUSED
            for key in one.schema_ids
        } | {one.schema.schema_id for one in self.unusable}
        return PlanSummary(
            tables=sum(one.exists for one in self.tables),
            created=sum(one.is_created for one in self.tables),
            changed=sum(one.exists and _is_changed(one) for one in self.tables),
            kept_apart=outcomes.count(Outcome.KEPT_APART),
            discarded=outcomes.count(Outcome.DISCARDED),
            quarantined=outcomes.count(Outcome.QUARANTINED),
            refused=len(refused),
            as_before=sum(len(one.as_before) for one in self.tables),
            derived_made=self._derived_to(GoldStep.MAKE),
            derived_rebuilt=self._derived_to(GoldStep.REBUILD),
        )

    @property
    def all_lands_as_it_is(self) -> bool:
        """Whether nothing would be refused, quarantined, discarded or kept apart."""
        applied = all(one.change.outcome is Outcome.APPLIED for one in self._asked())
        return applied and not self.unusable

    def as_record(self) -> dict[str, Any]:
        tables = [one.as_record() for one in self.tables]
        derived = [one.as_record() for one in self.derived]
        summary = asdict(self.summary)
        return {**vars(self), "summary": summary, "tables": tables, "derived": derived}

    def _derived_to(self, step: GoldStep) -> int:
        return sum(len(one.those_to(step)) for one in self.derived)

    def _asked(self) -> Iterator[Asked]:
        for table in self.tables:
            yield from table.changes


def change_record(change: SchemaChange) -> dict[str, Any]:
    return {**change.as_record(), "breaking": change.breaking, "text": str(change)}


def asked_record(asked: Asked) -> dict[str, Any]:
    return {**change_record(asked.change), "schema_ids": list(asked.schema_ids)}


def _is_changed(table: TablePlan) -> bool:
    return any(one.change.outcome in (Outcome.APPLIED, Outcome.KEPT_APART) for one in table.changes)
