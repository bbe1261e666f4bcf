"""One table's part of a batch: fit the files, commit them with the mark, or keep them waiting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from headgate.errors import CheckpointError
from headgate.land.committer import Commit, Committer, Mark, TableState
from headgate.land.fit_files import Asked, Fitted, fit_files
from headgate.land.ledger import Pending
from headgate.land.refit_file import refit_file
from headgate.land.schema_history import TableHistory
from headgate.land.staged_file import StagedFile
from headgate.land.table_shape import TableShape
from headgate.pipeline import Contract

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
    error = "no try was made"

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
        file if one.file_fits_as_it_is else refit_file(lake, file, one)
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
            Path(lake, table, file.path).unlink(missing_ok=True)
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
        refitted=not all(one.file_fits_as_it_is for one in fitted.fits),
        lineages=max((file.lineages for file in files), default=()),
        unknown_fields=sum(file.unknown_fields for file in files),
    )


def _refuse_table_ahead(table: str, marked: int, files: Sequence[StagedFile], mark: Mark) -> None:
    # Without files of this batch, only such wait as the table got in a batch that is yet open.
    if files and marked > mark.version:
        raise CheckpointError(
            "table-ahead",
            f"table {table} has batch version {marked}, this run is at {mark.version}",
            hint="the checkpoint or the ledger was set back: restore both, or use another lake",
            where=table,
        )


def _require_files(lake: str, files: Sequence[StagedFile]) -> None:
    """A commit that names a file which is not there makes a table that nobody can read."""
    for file in files:
        if not Path(lake, file.table, file.path).exists():
            raise FileNotFoundError(f"staged file {file.path} is gone")
