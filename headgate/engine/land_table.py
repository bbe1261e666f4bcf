"""One table's part of a batch: fit the files, commit them with the mark, or keep them waiting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from headgate.config import Contract, Rules
from headgate.engine.plan import TableShape
from headgate.errors import CheckpointError
from headgate.lake.commit import Commit, Committer, Mark, TableState
from headgate.lake.ledger import Pending
from headgate.lake.parquet import delete_staged, is_staged, refit_file
from headgate.lake.staged import StagedFile
from headgate.schema.changes import (
    CreateTable,
    DropColumn,
    Outcome,
    RenameColumn,
    SameColumns,
    SchemaChange,
    TableHistory,
    WidenType,
)
from headgate.schema.field_metadata import kept_apart_from
from headgate.schema.fit import EVOLVE, Fit, fit
from headgate.schema.origin import UNKNOWN_FIELDS


@dataclass(frozen=True)
class Asked:
    """A change, and the schemas that asked for it."""

    change: SchemaChange
    schema_ids: tuple[int, ...]

    def __str__(self) -> str:
        return self.change.summary


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
    for key in sorted(new.keys() - history.schema_ids):
        fitted = fit(new[key], schema, rules if len(schema) else EVOLVE, may_widen)
        changes = [one for one in fitted.changes if one not in fitted.blocked]
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
    there = {*newest.names, *first_columns.names, UNKNOWN_FIELDS.name, *history.dropped}
    there |= {change.was for change in changes if isinstance(change, RenameColumn)}
    return [
        DropColumn(column.name)
        for column in table
        if column.name not in there and kept_apart_from(column) is None
    ]


_MOST_TRIES = 5


@dataclass(frozen=True)
class TableLanded:
    """A table has its part of the batch."""

    table: str
    version: int
    rows: int
    bytes: int
    files: int
    route: str | None
    schema_ids: tuple[int, ...]
    changes: tuple[Asked, ...]
    schema: pa.Schema
    """Its columns now."""
    refitted: bool
    """Whether files had to be written again to fit."""
    lineages: tuple[str, ...] = ()
    """Of changes: the series of logs in which their positions count."""
    unknown_fields: int = 0
    """Rows whose payloads had fields that their own schema does not have."""


@dataclass(frozen=True)
class TablePending:
    """A table has not, and why; its files wait."""

    table: str
    files: tuple[Pending, ...]
    error: str


@dataclass(frozen=True)
class Before:
    """A batch that is run again: the table's version before it, None where there was none."""

    version: int | None


def land_table(
    committer: Committer,
    lake: str,
    table: str,
    shape: TableShape,
    files: Sequence[StagedFile],
    waiting: Sequence[Pending],
    mark: Mark,
    history: TableHistory,
    contract: Contract,
    before: Before | None = None,
) -> TableLanded | TablePending:
    """Exactly once, whatever happened before: the table itself says which batches it has."""
    error = "not attempted"

    def fitted(candidates: Sequence[StagedFile], columns: pa.Schema | None) -> Fitted:
        first, rules = shape.first_columns, contract.for_table(table)
        one = fit_files(table, candidates, columns, first, history, rules, may_widen=True)
        if not one.widened or columns is None:
            return one
        if committer.can_rewrite(table, int(contract.rewrite_up_to)):
            return one
        return fit_files(table, candidates, columns, first, history, rules, may_widen=False)

    # What changed is told from before the first try: a later one finds it half done.
    old: pa.Schema | None = None
    for attempt in range(_MOST_TRIES):
        try:
            state = committer.state(table, mark.app)
            if attempt == 0:
                old = _schema_before(committer, table, state, before)
            if state is not None and state.marked is not None and state.marked >= mark.version:
                _refuse_table_ahead(table, state.marked, files, mark)
                return _landed(table, state.version, fitted(files, old))
            late = [
                one.file
                for one in waiting
                if state is None or state.marked is None or one.version > state.marked
            ]
            now = fitted([*late, *files], state.schema if state else None)
            version = _commit(committer, lake, table, shape, now, mark)
            usual = state is None if old is None else state is not None and state.schema is old
            told = now if usual else fitted([*late, *files], old)
            return _landed(table, version, told)
        except CheckpointError:
            raise
        except Exception as trouble:  # one table's trouble, of whatever kind, is not the others'
            error = f"{type(trouble).__name__}: {trouble}"
    newly = [Pending(mark.version, file) for file in files]
    return TablePending(table, (*waiting, *newly), error)


def _schema_before(
    committer: Committer, table: str, state: TableState | None, before: Before | None
) -> pa.Schema | None:
    """The table's columns before the batch, None for a table that the batch makes."""
    if before is None or state is None:
        return state.schema if state else None
    if before.version is None:
        return None
    try:
        return committer.schema_at(table, before.version)
    except Exception:  # the log of that version is cleaned up: history is worth less than rows
        return state.schema


def _commit(
    committer: Committer,
    lake: str,
    table: str,
    shape: TableShape,
    fitted: Fitted,
    mark: Mark,
) -> int:
    _require_files(lake, fitted.files)
    ready = [
        file if one.is_identity else refit_file(lake, file, one)
        for file, one in zip(fitted.files, fitted.fits, strict=True)
    ]
    route = fitted.route
    about = None if route is None or shape.partition_by else f"Records of route {route!r}"
    version = committer.commit(
        Commit(table, fitted.schema, tuple(ready), mark, shape.partition_by, about, fitted.widened)
    )
    kept = {file.path for file in ready}
    for file in fitted.files:
        if file.path not in kept:
            delete_staged(lake, file)
    return version


def _landed(table: str, version: int, fitted: Fitted) -> TableLanded:
    files = fitted.files
    return TableLanded(
        table,
        version,
        rows=sum(file.rows for file in files),
        bytes=sum(file.size for file in files),
        files=len(files),
        route=fitted.route,
        schema_ids=fitted.schema_ids,
        changes=fitted.asked,
        schema=fitted.schema,
        refitted=not all(one.is_identity for one in fitted.fits),
        lineages=max((file.lineages for file in files), default=()),
        unknown_fields=sum(file.unknown_fields for file in files),
    )


def _refuse_table_ahead(table: str, marked: int, files: Sequence[StagedFile], mark: Mark) -> None:
    # Without files of this batch, only such wait as the table got in a batch that is yet open.
    if files and marked > mark.version:
        raise CheckpointError(
            "table-ahead",
            f"table {table} already has batch {marked}, but this run is at {mark.version}",
            hint="the checkpoint or the ledger was rolled back: restore both, or use another lake",
            where=table,
        )


def _require_files(lake: str, files: Sequence[StagedFile]) -> None:
    """A commit that names a file which is not there makes a table that nobody can read."""
    for file in files:
        if not is_staged(lake, file):
            raise FileNotFoundError(f"staged file {file.path} is gone")
