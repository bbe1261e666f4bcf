"""One table's part of a batch: fit the files, commit them with the mark, or keep them waiting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from headgate.errors import CheckpointError
from headgate.land.committer import Commit, Committer, Mark, TableState
from headgate.land.ledger import Pending
from headgate.land.refit_file import refit_file
from headgate.land.staged_file import StagedFile
from headgate.schema.change import CreateTable, SchemaChange
from headgate.schema.fit import fit

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
    changes: tuple[SchemaChange, ...]
    already: bool = False
    """It had it before: the batch is run again after a crash."""


@dataclass(frozen=True)
class TablePending:
    """A table has not, and why; its files wait."""

    table: str
    files: tuple[Pending, ...]
    error: str


@dataclass(frozen=True)
class TableShape:
    """What a table is beyond the columns of its files."""

    first_columns: pa.Schema
    """Columns that it has from the start, whether a file has them or not."""
    partition_by: tuple[str, ...] = ()


def land_table(
    committer: Committer,
    lake: str,
    table: str,
    shape: TableShape,
    files: Sequence[StagedFile],
    waiting: Sequence[Pending],
    mark: Mark,
) -> TableLanded | TablePending:
    """Exactly once, whatever happened before: the table itself says which batches it has."""
    error = "no try was made"
    tried = False
    for _ in range(_MOST_TRIES):
        try:
            state = committer.state(table, mark.app)
            if state is not None and state.marked is not None and state.marked >= mark.version:
                landed = _landed_before(table, state, files, mark)
                # After a try of our own, these are the very files that the table has got.
                if not tried:
                    _remove(lake, files)
                return landed
            late = [
                one.file
                for one in waiting
                if state is None or state.marked is None or one.version > state.marked
            ]
            tried = True
            return _commit(committer, lake, table, shape, state, [*late, *files], mark)
        except CheckpointError:
            raise
        except Exception as trouble:  # one table's trouble, of whatever kind, is not the others'
            error = f"{type(trouble).__name__}: {trouble}"
    newly = [Pending(mark.version, file) for file in files]
    return TablePending(table, (*waiting, *newly), error)


def _commit(
    committer: Committer,
    lake: str,
    table: str,
    shape: TableShape,
    state: TableState | None,
    files: Sequence[StagedFile],
    mark: Mark,
) -> TableLanded:
    schema = state.schema if state else pa.schema([])
    changes: list[SchemaChange] = []
    fitted_files = []
    # Older schemas first: where two of one batch disagree, the older one names the column.
    for file in sorted(files, key=lambda one: (one.schema_ids[:1], one.path)):
        fitted = fit(file.schema, schema)
        schema = fitted.schema
        changes.extend(fitted.changes)
        fitted_files.append(file if fitted.file_fits_as_it_is else refit_file(lake, file, fitted))
    schema = fit(shape.first_columns, schema).schema
    if state is None:
        apart = [change for change in changes if change.outcome != "applied"]
        changes = [CreateTable(table, len(schema)), *apart]
    route = files[0].route if files else None
    version = committer.commit(
        Commit(
            table,
            schema,
            tuple(fitted_files),
            mark,
            shape.partition_by,
            None if route is None or shape.partition_by else f"Records of route {route!r}",
        )
    )
    fits = {file.path for file in fitted_files}
    _remove(lake, [file for file in files if file.path not in fits])
    return TableLanded(
        table,
        version,
        rows=sum(file.rows for file in fitted_files),
        bytes=sum(file.size for file in fitted_files),
        files=len(fitted_files),
        route=route,
        schema_ids=tuple(sorted({one for file in files for one in file.schema_ids})),
        changes=tuple(dict.fromkeys(changes)),
    )


def _landed_before(
    table: str, state: TableState, files: Sequence[StagedFile], mark: Mark
) -> TableLanded:
    assert state.marked is not None
    # Without files of this batch, only such wait as the table got in a batch that is yet open.
    if files and state.marked > mark.version:
        raise CheckpointError(
            "table-ahead",
            f"table {table} has batch version {state.marked}, this run is at {mark.version}",
            hint="the checkpoint or the ledger was set back: restore both, or use another lake",
            where=table,
        )
    return TableLanded(
        table,
        state.version,
        rows=sum(file.rows for file in files),
        bytes=sum(file.size for file in files),
        files=len(files),
        route=files[0].route if files else None,
        schema_ids=tuple(sorted({one for file in files for one in file.schema_ids})),
        changes=(),
        already=True,
    )


def _remove(lake: str, files: Sequence[StagedFile]) -> None:
    for file in files:
        Path(lake, file.table, file.path).unlink(missing_ok=True)
