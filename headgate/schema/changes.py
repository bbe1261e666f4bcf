"""Schema changes as values: the plan, the ledger, the command line and the page show the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any, ClassVar, Literal


class Outcome(StrEnum):
    """What became of a change that a schema asked for."""

    APPLIED = "applied"
    """The table has it."""
    KEPT_APART = "kept apart"
    """The values are in a column of their own; the one that was there is as it was."""
    DISCARDED = "discarded"
    """Rows land without the value; the ledger has how many."""
    QUARANTINED = "quarantined"
    """Records that carry such a value are in quarantine."""
    REFUSED = "refused"
    """All records of the schema are in quarantine."""


@dataclass(frozen=True)
class SchemaChange:
    """Something that a schema asks of a table's columns."""

    column: str
    """Dotted path of the column."""
    outcome: Outcome = field(default=Outcome.APPLIED, kw_only=True)
    """By default, that where the contract says `evolve`."""

    decided_by: ClassVar[Literal["tables", "columns", "types"] | None] = None
    """The rule of the contract that decides; None for what asks nothing of the table."""
    breaking: ClassVar[bool] = False
    """Whether those who query the table should look at it, even where it is followed."""

    @property
    def kind(self) -> str:
        return type(self).__name__

    @property
    def withheld(self) -> bool:
        """Whether the contract keeps it out of the table."""
        return self.outcome in (Outcome.DISCARDED, Outcome.QUARANTINED, Outcome.REFUSED)

    @property
    def told(self) -> str:
        """In words, with the outcome where the words do not have it."""
        return f"{self} ({self.outcome})" if self.withheld else str(self)

    def as_record(self) -> dict[str, Any]:
        return {"change": self.kind, **asdict(self)}

    def __str__(self) -> str:
        return f"{self.kind} {self.column}"


@dataclass(frozen=True)
class CreateTable(SchemaChange):
    """A route was seen for the first time; `column` names the table."""

    columns: int

    decided_by = "tables"

    def __str__(self) -> str:
        return f"new table with {self.columns} columns"


@dataclass(frozen=True)
class AddColumn(SchemaChange):
    """A schema has a field that the table has no column for."""

    type: str

    decided_by = "columns"

    def __str__(self) -> str:
        return f"+ {self.column} {self.type}"


@dataclass(frozen=True)
class AddNestedField(AddColumn):
    """The same inside a struct."""


@dataclass(frozen=True)
class RenameColumn(SchemaChange):
    """A field has the number of another one, and a new name: its values go on in a new column.

    Whether that is the same thing renamed or another thing with an old number, nobody can tell.
    """

    was: str
    type: str
    outcome: Outcome = field(default=Outcome.KEPT_APART, kw_only=True)

    decided_by = "columns"
    breaking = True

    def __str__(self) -> str:
        return f"{self.was} is renamed to {self.column}"


@dataclass(frozen=True)
class CaseTwin(SchemaChange):
    """Two fields differ in upper and lower case only: the later one gets a name of its own."""

    into: str
    outcome: Outcome = field(default=Outcome.KEPT_APART, kw_only=True)

    decided_by = "columns"

    def __str__(self) -> str:
        if self.outcome is Outcome.KEPT_APART:
            return f"{self.column} goes to {self.into}"
        return f"{self.column} differs from a column only in case"


@dataclass(frozen=True)
class WidenType(SchemaChange):
    """A field has a larger type of the same kind: the column gets it, and the table is rewritten.

    Delta could note such a change without touching a file, but then delta-rs could no longer
    write the table.
    """

    was: str
    type: str

    decided_by = "types"

    def __str__(self) -> str:
        return f"{self.column} widens from {self.was} to {self.type}"


@dataclass(frozen=True)
class NarrowType(SchemaChange):
    """A field has a smaller type than its column, as older writers do: values are cast up."""

    was: str
    type: str

    def __str__(self) -> str:
        return f"{self.column} stays {self.was}; {self.type} values are cast"


@dataclass(frozen=True)
class RetypeColumn(SchemaChange):
    """A field has a type that the column cannot hold: its values go to a column of their own."""

    was: str
    type: str
    into: str
    outcome: Outcome = field(default=Outcome.KEPT_APART, kw_only=True)

    decided_by = "types"
    breaking = True

    def __str__(self) -> str:
        if self.outcome is Outcome.KEPT_APART:
            return f"{self.column} is {self.was}; {self.type} values go to {self.into}"
        return f"{self.column} is {self.was}, not {self.type}"


@dataclass(frozen=True)
class DropColumn(SchemaChange):
    """The newest schema has no such field any more: the column stays, new rows have null."""

    breaking = True

    def __str__(self) -> str:
        return f"{self.column} is no longer sent; the column stays"


@dataclass(frozen=True)
class MakeOptional(SchemaChange):
    """A field that was always there may be absent from now on: every column takes null."""

    def __str__(self) -> str:
        return f"{self.column} becomes optional"


@dataclass(frozen=True)
class SameColumns(SchemaChange):
    """A schema that was not met before asks nothing of the table; `column` names the table."""

    def __str__(self) -> str:
        return "new schema, same columns"


def change_of(record: Mapping[str, Any]) -> SchemaChange | None:
    """The change that a record tells of; None for a kind that a newer version wrote."""
    for kind in kinds_of_change():
        if kind.__name__ == record["change"]:
            names = {one.name for one in fields(kind)}
            if names <= record.keys():
                told = {name: record[name] for name in names}
                return kind(**{**told, "outcome": Outcome(record["outcome"])})
    return None


def kinds_of_change(kind: type[SchemaChange] = SchemaChange) -> Iterator[type[SchemaChange]]:
    """Every kind that there is."""
    for narrower in kind.__subclasses__():
        yield narrower
        yield from kinds_of_change(narrower)
