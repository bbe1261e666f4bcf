"""Schema changes as values, shared by the plan, the ledger and the command line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any, ClassVar, Literal


class Outcome(StrEnum):
    """What the contract made of a schema change."""

    APPLIED = "applied"
    """The table has the change."""
    KEPT_APART = "kept apart"
    """The values have a column of their own; the existing column is unchanged."""
    DISCARDED = "discarded"
    """Rows land without the value; the ledger counts them."""
    QUARANTINED = "quarantined"
    """Records with such a value are quarantined."""
    REFUSED = "refused"
    """All records of the schema are quarantined."""


@dataclass(frozen=True)
class SchemaChange:
    """A difference between a schema and the columns of its table."""

    column: str
    """Dotted path of the column."""
    outcome: Outcome = field(default=Outcome.APPLIED, kw_only=True)
    """The default is the outcome under `evolve`."""

    decided_by: ClassVar[Literal["tables", "columns", "types"] | None] = None
    """The contract rule that applies; None for changes that do not affect the table."""
    breaking: ClassVar[bool] = False
    """Whether it may break queries on the table, even if it is applied."""

    @property
    def kind(self) -> str:
        return type(self).__name__

    @property
    def is_blocked(self) -> bool:
        """Whether the contract keeps it out of the table."""
        return self.outcome in (Outcome.DISCARDED, Outcome.QUARANTINED, Outcome.REFUSED)

    @property
    def summary(self) -> str:
        """A description, with the outcome if the contract blocked the change."""
        return f"{self} ({self.outcome})" if self.is_blocked else str(self)

    def as_record(self) -> dict[str, Any]:
        return {"change": self.kind, **asdict(self)}

    def __str__(self) -> str:
        return f"{self.kind} {self.column}"


@dataclass(frozen=True)
class CreateTable(SchemaChange):
    """The first schema of a route; `column` is the name of the table."""

    columns: int

    decided_by = "tables"

    def __str__(self) -> str:
        return f"new table with {self.columns} columns"


@dataclass(frozen=True)
class AddColumn(SchemaChange):
    """A field without a column in the table."""

    type: str

    decided_by = "columns"

    def __str__(self) -> str:
        return f"+ {self.column} {self.type}"


@dataclass(frozen=True)
class AddNestedField(AddColumn):
    """A field without a counterpart in a struct column."""


@dataclass(frozen=True)
class RenameColumn(SchemaChange):
    """A field with the number of an existing column and a new name: it gets a new column.

    It is unknown whether the field was renamed or the number was reused for something else.
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
    """A field whose name differs from a column's only in case: it gets a unique name."""

    into: str
    outcome: Outcome = field(default=Outcome.KEPT_APART, kw_only=True)

    decided_by = "columns"

    def __str__(self) -> str:
        if self.outcome is Outcome.KEPT_APART:
            return f"{self.column} goes to {self.into}"
        return f"{self.column} differs from a column only in case"


@dataclass(frozen=True)
class WidenType(SchemaChange):
    """A field with a wider type: the column is widened, and the table is rewritten.

    Delta's type widening feature would avoid the rewrite, but delta-rs cannot write such tables.
    """

    was: str
    type: str

    decided_by = "types"

    def __str__(self) -> str:
        return f"{self.column} widens from {self.was} to {self.type}"


@dataclass(frozen=True)
class NarrowType(SchemaChange):
    """A field with a narrower type than its column, as older writers have: values are widened."""

    was: str
    type: str

    def __str__(self) -> str:
        return f"{self.column} stays {self.was}, {self.type} values are widened"


@dataclass(frozen=True)
class RetypeColumn(SchemaChange):
    """A field with a type that its column cannot hold: the values get a column of their own."""

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
    """A column that the newest schema no longer has: it stays, and is null in new rows."""

    breaking = True

    def __str__(self) -> str:
        return f"{self.column} is no longer sent; the column stays"


@dataclass(frozen=True)
class MakeOptional(SchemaChange):
    """A field that is no longer required; every column is nullable anyway."""

    def __str__(self) -> str:
        return f"{self.column} is no longer required"


@dataclass(frozen=True)
class SameColumns(SchemaChange):
    """A new schema without changes to the columns; `column` is the name of the table."""

    def __str__(self) -> str:
        return "new schema with the same columns"


def change_from_record(record: Mapping[str, Any]) -> SchemaChange | None:
    """Return the change in a ledger record; None for a change that only a newer version knows."""
    for change_type in change_types():
        if change_type.__name__ == record["change"]:
            names = {attribute.name for attribute in fields(change_type)}
            if names <= record.keys():
                values = {name: record[name] for name in names}
                return change_type(**{**values, "outcome": Outcome(record["outcome"])})
    return None


def change_types(base: type[SchemaChange] = SchemaChange) -> Iterator[type[SchemaChange]]:
    """Yield every type of change."""
    for change_type in base.__subclasses__():
        yield change_type
        yield from change_types(change_type)


@dataclass
class TableHistory:
    """The schemas and dropped columns that one table has seen."""

    schema_ids: set[int] = field(default_factory=set)
    dropped: set[str] = field(default_factory=set)
    """Columns that were missing in a schema that was the newest at the time."""

    def is_newest(self, schema_id: int) -> bool:
        return all(schema_id > seen for seen in self.schema_ids)


@dataclass
class SchemaHistory:
    """The schemas and dropped columns that all tables have seen."""

    tables: dict[str, TableHistory] = field(default_factory=dict)

    def record(self, table: str, schema_ids: Iterable[int], dropped: str | None = None) -> None:
        """Add schemas that a table has seen, and the column that they dropped."""
        history = self.tables.setdefault(table, TableHistory())
        history.schema_ids.update(schema_ids)
        if dropped is not None:
            history.dropped.add(dropped)

    def of_table(self, table: str) -> TableHistory:
        return self.tables.get(table) or TableHistory()

    @property
    def schema_ids(self) -> dict[str, frozenset[int]]:
        return {table: frozenset(history.schema_ids) for table, history in self.tables.items()}
