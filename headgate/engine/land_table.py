"""Lands one table of a batch: fit the files, then commit them, or keep them pending."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from headgate.config import Contract, Rules
from headgate.config.location import is_remote
from headgate.engine.plan import TableShape
from headgate.errors import CheckpointError
from headgate.lake.commit import Commit, Committer, Mark, TableState
from headgate.lake.ledger import Pending
from headgate.lake.staged import StagedFile
from headgate.lake.staged_files import bring_back, delete_staged, hold_back, refit_file, release
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


@dataclass(frozen=True)
class RequestedChange:
    """A schema change, and the schemas that require it."""

    change: SchemaChange
    schema_ids: tuple[int, ...]

    def __str__(self) -> str:
        return self.change.summary


@dataclass(frozen=True)
class Fitted:
    """Files, and how they fit into a table."""

    schema: pa.Schema
    """The table's columns after the commit."""
    files: tuple[StagedFile, ...]
    fits: tuple[Fit, ...]
    changes: tuple[RequestedChange, ...]

    @property
    def route(self) -> str | None:
        return self.files[0].route if self.files else None

    @property
    def schema_ids(self) -> tuple[int, ...]:
        return tuple(sorted({one for file in self.files for one in file.schema_ids}))

    @property
    def widened(self) -> bool:
        return any(isinstance(one.change, WidenType) for one in self.changes)


def fit_files(
    table: str,
    files: Sequence[StagedFile],
    old: pa.Schema | None,
    shape: TableShape,
    history: TableHistory,
    rules: Rules,
    may_widen: bool,
) -> Fitted:
    """Find the table's columns after a commit of files, and where the files' columns go.

    Schemas are applied from old to new: where two of a batch conflict, the older one gets the name
    of the column. The rules apply to schemas, except the one that creates the table. Files conform
    to the rules already, so all of their columns are placed.
    """
    ordered = tuple(sorted(files, key=lambda one: (one.schema_ids[:1], one.path)))
    schema = pa.schema([]) if old is None else old
    requested: list[RequestedChange] = []
    new = {key: columns for file in ordered for key, columns in file.schemas_by_id.items()}
    for key in sorted(new.keys() - history.schema_ids):
        fitted = fit(new[key], schema, rules if len(schema) else EVOLVE, may_widen)
        changes = [one for one in fitted.changes if one not in fitted.blocked]
        if old is not None and history.is_newest(key):
            changes += _dropped(new[key].names, old, shape, history, fitted.changes)
        if not fitted.changes and not changes:
            changes = [SameColumns(table)]
        requested += [RequestedChange(change, (key,)) for change in changes]
        schema = fitted.schema
    schemas = [file.schema for file in ordered]
    fits: list[Fit] = []
    for file, columns in zip(ordered, schemas, strict=True):
        fitted = fit(columns, schema, may_widen=may_widen)
        fits.append(fitted)
        changes = [change for change in fitted.changes if change.decided_by is not None]
        requested += [RequestedChange(change, file.schema_ids) for change in changes]
        schema = fitted.schema
        if old is not None and file.source_columns is not None:
            gone = _dropped(file.source_columns, old, shape, history)
            requested += [RequestedChange(change, ()) for change in gone]
    schema = fit(shape.first_columns, schema).schema
    if any(one.schema is not schema for one in fits):
        fits = [fit(columns, schema, may_widen=may_widen) for columns in schemas]
    if old is None:
        ids = tuple(sorted({one for file in ordered for one in file.schema_ids}))
        not_applied = [one for one in requested if one.change.outcome is not Outcome.APPLIED]
        requested = [RequestedChange(CreateTable(table, len(schema)), ids), *not_applied]
    return Fitted(schema, ordered, tuple(fits), tuple(dict.fromkeys(requested)))


def _dropped(
    newest: Iterable[str],
    table: pa.Schema,
    shape: TableShape,
    history: TableHistory,
    changes: Sequence[SchemaChange] = (),
) -> list[SchemaChange]:
    """Return the columns that the source no longer has; each is reported once."""
    present = {*newest, *shape.own_columns, *history.dropped}
    present |= {change.was for change in changes if isinstance(change, RenameColumn)}
    return [
        DropColumn(column.name)
        for column in table
        if column.name not in present and kept_apart_from(column) is None
    ]


_MAX_ATTEMPTS = 5
_GONE = "its files are gone"


@dataclass(frozen=True)
class TableLanded:
    """A table that has the rows of the batch."""

    table: str
    version: int
    rows: int
    bytes: int
    files: int
    route: str | None
    schema_ids: tuple[int, ...]
    changes: tuple[RequestedChange, ...]
    schema: pa.Schema
    """Columns after the commit."""
    refitted: bool
    """Whether files were rewritten to fit the table."""
    lineages: tuple[str, ...] = ()
    """Of a change log: the lineages of its positions."""
    unknown_fields: int = 0
    """Number of rows whose payloads have fields that their schema does not have."""
    lost: tuple[Pending, ...] = ()
    """Files that are gone, without their rows."""


@dataclass(frozen=True)
class TablePending:
    """A table that could not be committed; its files stay pending."""

    table: str
    files: tuple[Pending, ...]
    error: str
    lost: tuple[Pending, ...] = ()
    """Files that are gone, and are not tried again."""


@dataclass(frozen=True)
class BatchMark:
    """The marks of a batch in every table that it commits to."""

    batch: Mark
    run: Mark | None = None
    """The run that staged the batch: another run may have used the same number for its own."""

    @property
    def all(self) -> tuple[Mark, ...]:
        return (self.batch,) if self.run is None else (self.batch, self.run)


@dataclass(frozen=True)
class VersionBefore:
    """The table's version before a batch that is retried; None if the table did not exist."""

    version: int | None


def land_table(
    committer: Committer,
    lake: str,
    table: str,
    shape: TableShape,
    files: Sequence[StagedFile],
    pending: Sequence[Pending],
    marks: BatchMark,
    history: TableHistory,
    contract: Contract,
    before: VersionBefore | None = None,
) -> TableLanded | TablePending:
    """Commit the files of a batch and pending ones, or return them as pending.

    Every commit marks the table with the batch, so a retry does not commit a batch twice. Files
    that are gone do not keep the others from being committed.
    """
    mark, error = marks.batch, "not attempted"

    def fitted(candidates: Sequence[StagedFile], columns: pa.Schema | None) -> Fitted:
        rules = contract.for_table(table)
        one = fit_files(table, candidates, columns, shape, history, rules, may_widen=True)
        if not one.widened or columns is None:
            return one
        if committer.can_rewrite(table, int(contract.rewrite_up_to)):
            return one
        return fit_files(table, candidates, columns, shape, history, rules, may_widen=False)

    # Changes are relative to the columns before the first attempt, which may have added some.
    old: pa.Schema | None = None
    lost: tuple[Pending, ...] = ()
    for attempt in range(_MAX_ATTEMPTS):
        try:
            state = committer.state(table, mark.app)
            if attempt == 0:
                old = _schema_before(committer, table, state, before)
            if state is not None and state.marked is not None and state.marked >= mark.version:
                if files:
                    _refuse_foreign_batch(committer, table, state.marked, marks)
                # Pending files went in with the commit that has the mark, unless they were gone.
                already = [*(one.file for one in pending if one not in lost), *files]
                for one in pending:
                    release(lake, one.file)
                landed = _landed(table, state.version, fitted(already, old), state.schema)
                return replace(landed, lost=lost)
            not_landed = [
                one
                for one in (*pending, *(Pending(mark.version, file) for file in files))
                if state is None or state.marked is None or one.version > state.marked
            ]
            # In an object store, each file would cost a request. Those of this batch are new.
            are_new = is_remote(lake) and before is None and attempt == 0 and not pending
            present = [one.file for one in not_landed if are_new or bring_back(lake, one.file)]
            lost = tuple(one for one in not_landed if one.file not in present)
            if lost and not present:
                return TablePending(table, (), _GONE, lost)
            now = fitted(present, state.schema if state else None)
            read = {mark.app: state.marked if state else None}
            version = _commit(committer, lake, table, shape, now, marks.all, read)
            is_same = state is None if old is None else state is not None and state.schema is old
            since_old = now if is_same else fitted(present, old)
            for one in pending:
                release(lake, one.file)
            return replace(_landed(table, version, since_old, now.schema), lost=lost)
        except CheckpointError:
            raise
        except Exception as failure:  # of any kind: other tables must land
            error = f"{type(failure).__name__}: {failure}"
    waiting = (*pending, *(Pending(mark.version, file) for file in files))
    for one in waiting:
        hold_back(lake, one.file)
    return TablePending(table, waiting, error)


def _schema_before(
    committer: Committer, table: str, state: TableState | None, before: VersionBefore | None
) -> pa.Schema | None:
    """Return the table's columns before the batch; None for a table that the batch creates."""
    if before is None or state is None:
        return state.schema if state else None
    if before.version is None:
        return None
    try:
        return committer.schema_at(table, before.version)
    except Exception:  # the log of that version has expired: rows matter more than history
        return state.schema


def _commit(
    committer: Committer,
    lake: str,
    table: str,
    shape: TableShape,
    fitted: Fitted,
    marks: tuple[Mark, ...],
    read: Mapping[str, int | None],
) -> int:
    ready = [
        file if one.is_identity else refit_file(lake, file, one)
        for file, one in zip(fitted.files, fitted.fits, strict=True)
    ]
    route = fitted.route
    description = None if route is None or shape.partition_by else f"Records of route {route!r}"
    version = committer.commit(
        Commit(
            table,
            fitted.schema,
            tuple(ready),
            marks,
            "rewrite" if fitted.widened else "append",
            shape.partition_by,
            description=description,
            required_marks=read,
        )
    )
    kept = {file.path for file in ready}
    for file in fitted.files:
        if file.path not in kept:
            delete_staged(lake, file)
    return version


def _landed(table: str, version: int, fitted: Fitted, schema: pa.Schema) -> TableLanded:
    files = fitted.files
    return TableLanded(
        table,
        version,
        rows=sum(file.rows for file in files),
        bytes=sum(file.size for file in files),
        files=len(files),
        route=fitted.route,
        schema_ids=fitted.schema_ids,
        changes=fitted.changes,
        schema=schema,
        refitted=not all(one.is_identity for one in fitted.fits),
        lineages=max((file.lineages for file in files), default=()),
        unknown_fields=sum(file.unknown_fields for file in files),
    )


def _refuse_foreign_batch(committer: Committer, table: str, marked: int, marks: BatchMark) -> None:
    """Raise if the table has another batch than this one under its number, or a later one.

    Pending files alone are not a reason: a batch that is not complete yet may have committed them.
    """
    mark, run = marks.batch, marks.run
    if marked > mark.version:
        raise CheckpointError(
            "table-ahead",
            f"table {table} already has batch {marked}, but this run is at {mark.version}",
            hint="the checkpoint or the ledger was rolled back: restore both, or use another lake",
            where=table,
        )
    state = committer.state(table, run.app) if run else None
    if run is not None and state is not None and state.marked != run.version:
        raise CheckpointError(
            "table-ahead",
            f"table {table} has a batch {marked} of run {state.marked}, which was replaced, and "
            f"not of run {run.version}",
            hint="restore the lake from a copy and run with --from-ledger, or land into an empty "
            "lake: which records that run has read is not known",
            where=table,
        )
