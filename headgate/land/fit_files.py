"""How the files of a batch fit into their table, and what their schemas ask of it: pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from headgate.land.schema_history import TableHistory
from headgate.land.staged_file import StagedFile
from headgate.pipeline import Rules
from headgate.schema.change import (
    CreateTable,
    DropColumn,
    Outcome,
    RenameColumn,
    SameColumns,
    SchemaChange,
    WidenType,
)
from headgate.schema.field_facts import apart_from
from headgate.schema.fit import FOLLOW, Fit, fit


@dataclass(frozen=True)
class Asked:
    """A change, and the schemas that asked for it."""

    change: SchemaChange
    schema_ids: tuple[int, ...]


@dataclass(frozen=True)
class Fitted:
    """Files, and how they fit into a table as it was."""

    schema: pa.Schema
    """The table's columns afterwards."""
    files: tuple[StagedFile, ...]
    fits: tuple[Fit, ...]
    asked: tuple[Asked, ...]

    @property
    def route(self) -> str | None:
        return self.files[0].route if self.files else None

    @property
    def schema_ids(self) -> tuple[int, ...]:
        return tuple(sorted({one for file in self.files for one in file.schema_ids}))

    @property
    def widened(self) -> bool:
        return any(isinstance(one.change, WidenType) for one in self.asked)


def fit_files(
    table: str,
    files: Sequence[StagedFile],
    old: pa.Schema | None,
    first_columns: pa.Schema,
    history: TableHistory,
    rules: Rules,
    may_widen: bool,
) -> Fitted:
    """Older schemas first: where two of one batch disagree, the older one names the column.

    The rules say what schemas may do, but for the one that makes the table. The files themselves
    have passed them already, and whatever they have finds its place.
    """
    ordered = tuple(sorted(files, key=lambda one: (one.schema_ids[:1], one.path)))
    schema = pa.schema([]) if old is None else old
    asked: list[Asked] = []
    new = {key: columns for file in ordered for key, columns in file.met.items()}
    for key in sorted(new.keys() - history.met):
        fitted = fit(new[key], schema, rules if len(schema) else FOLLOW, may_widen)
        changes = [one for one in fitted.changes if one not in fitted.withheld]
        if old is not None and history.is_newest(key):
            changes += _dropped(new[key], old, first_columns, history, fitted.changes)
        if not fitted.changes and not changes:
            changes = [SameColumns(table)]
        asked += [Asked(change, (key,)) for change in changes]
        schema = fitted.schema
    schemas = [file.schema for file in ordered]
    fits: list[Fit] = []
    for file, columns in zip(ordered, schemas, strict=True):
        fitted = fit(columns, schema, may_widen=may_widen)
        fits.append(fitted)
        changes = [change for change in fitted.changes if change.decided_by is not None]
        asked += [Asked(change, file.schema_ids) for change in changes]
        schema = fitted.schema
    gone = sorted({name for file in ordered for name in file.dropped} - history.dropped)
    asked += [Asked(DropColumn(name), ()) for name in gone]
    schema = fit(first_columns, schema).schema
    if any(one.schema is not schema for one in fits):
        fits = [fit(columns, schema, may_widen=may_widen) for columns in schemas]
    if old is None:
        ids = tuple(sorted({one for file in ordered for one in file.schema_ids}))
        apart = [one for one in asked if one.change.outcome is not Outcome.APPLIED]
        asked = [Asked(CreateTable(table, len(schema)), ids), *apart]
    return Fitted(schema, ordered, tuple(fits), tuple(dict.fromkeys(asked)))


def _dropped(
    newest: pa.Schema,
    table: pa.Schema,
    first_columns: pa.Schema,
    history: TableHistory,
    changes: Sequence[SchemaChange],
) -> list[SchemaChange]:
    """Columns that were the message's own and are no longer in it; each is told of once."""
    there = {*newest.names, *first_columns.names, *history.dropped}
    there |= {change.was for change in changes if isinstance(change, RenameColumn)}
    return [
        DropColumn(column.name)
        for column in table
        if column.name not in there and apart_from(column) is None
    ]
