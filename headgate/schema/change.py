"""Schema changes as values: the plan, the ledger, the command line and the page show the same."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class SchemaChange:
    """Something about a table's columns that a batch asked for."""

    column: str
    """Dotted path of the column."""

    @property
    def kind(self) -> str:
        return type(self).__name__

    @property
    def outcome(self) -> str:
        return "applied"

    def as_record(self) -> dict[str, Any]:
        return {"change": self.kind, "outcome": self.outcome, **asdict(self)}

    def __str__(self) -> str:
        return f"{self.kind} {self.column}"


@dataclass(frozen=True)
class CreateTable(SchemaChange):
    """A route was seen for the first time; `column` names the table."""

    columns: int

    def __str__(self) -> str:
        return f"new table with {self.columns} columns"


@dataclass(frozen=True)
class AddColumn(SchemaChange):
    """A schema has a field that the table has no column for."""

    type: str

    def __str__(self) -> str:
        return f"+ {self.column} {self.type}"


@dataclass(frozen=True)
class AddNestedField(AddColumn):
    """The same inside a struct."""


@dataclass(frozen=True)
class RetypeColumn(SchemaChange):
    """A field has a type that the column cannot hold: its values go to a column of their own."""

    was: str
    type: str
    into: str

    @property
    def outcome(self) -> str:
        return "kept apart"

    def __str__(self) -> str:
        return f"{self.column} is {self.was}, {self.type} goes to {self.into}"


@dataclass(frozen=True)
class CaseTwin(SchemaChange):
    """Two fields differ in upper and lower case only: the later one gets a name of its own."""

    into: str

    @property
    def outcome(self) -> str:
        return "kept apart"

    def __str__(self) -> str:
        return f"{self.column} goes to {self.into}"
