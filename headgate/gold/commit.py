"""Commits of derived rows, which run inside Spark tasks, one commit per table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from headgate.lake.commit import Mark
from headgate.lake.snapshot import Snapshot
from headgate.lake.staged import StagedFile
from headgate.lake.write import commit_files, new_file

TABLE = "_table"
"""Column with the index of the table that a row is for; integers sort faster than names."""
COMMITTED_DDL = "table string, rows bigint, version bigint, error string"
_MAX_FILE_BYTES = 128 << 20


@dataclass(frozen=True)
class Derivation:
    """How to commit the rows of one derived table."""

    marks: tuple[Mark, ...]
    """Versions of the sources that the table includes after the commit."""
    appends: bool
    """Whether to append the rows, instead of replacing those of the table."""


@dataclass(frozen=True)
class Committed:
    """The result of one commit."""

    table: str
    rows: int
    version: int | None
    error: str | None = None


Commit = Callable[[tuple[pa.Scalar, ...], Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A function for `applyInArrow`, called with the rows of one table."""


def commit_each(lake: str, tables: Sequence[tuple[str, Derivation]]) -> Commit:
    """Return a function that commits rows grouped by `TABLE` and returns errors as results."""

    def commit(
        key: tuple[pa.Scalar, ...], batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        name, derivation = tables[key[0].as_py()]
        committed = commit_rows(lake, name, drop_table_column(batches), derivation)
        yield pa.RecordBatch.from_pylist([vars(committed)], schema=_COMMITTED_SCHEMA)

    return commit


def drop_table_column(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    for batch in batches:
        yield pa.Table.from_batches([batch.drop_columns([TABLE])])


_COMMITTED_SCHEMA = pa.schema(
    [("table", pa.string()), ("rows", pa.int64()), ("version", pa.int64()), ("error", pa.string())]
)


def commit_rows(
    lake: str, table: str, pieces: Iterable[pa.Table], derivation: Derivation
) -> Committed:
    """Write rows to files and commit them; an error is part of the result."""
    rows = 0
    try:
        files = []
        for content in split_into_files(pieces):
            rows += len(content)
            files.append(new_file(lake, table, content))
        return Committed(table, rows, _commit(lake, table, files, derivation))
    except Exception as error:  # must not fail the other tables
        return Committed(table, rows, None, f"{type(error).__name__}: {error}")


def split_into_files(pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the rows of one file at a time; at least one table, even if it is empty."""
    held: list[pa.Table] = []
    size = written = 0
    for piece in map(drop_untyped_columns, pieces):
        held.append(piece)
        size += piece.nbytes
        if size > _MAX_FILE_BYTES:
            yield pa.concat_tables(held)
            held, size, written = [], 0, written + 1
    if size or not written:
        yield pa.concat_tables(held)


def drop_untyped_columns(rows: pa.Table) -> pa.Table:
    """Drop columns whose type is still unknown because all their values are null."""
    known = [field.name for field in rows.schema if not _has_null_type(field.type)]
    return rows.select(known) if len(known) < rows.num_columns else rows


def _has_null_type(kind: pa.DataType) -> bool:
    if pa.types.is_null(kind):
        return True
    return any(_has_null_type(kind.field(at).type) for at in range(kind.num_fields))


def _commit(lake: str, name: str, files: Sequence[StagedFile], derivation: Derivation) -> int:
    """Replace the rows of the table with those of the files, or append them."""
    table = Snapshot.newest(lake, name)
    if table is not None and derivation.appends and _has_marks(table, derivation):
        return table.version
    return commit_files(
        lake,
        name,
        table,
        files,
        schema=files[0].schema,
        marks=derivation.marks,
        replace=not derivation.appends,
    )


def _has_marks(table: Snapshot, derivation: Derivation) -> bool:
    """Whether an earlier attempt of this task has already committed."""
    return all(
        (marked := table.mark(mark.app)) is not None and marked >= mark.version
        for mark in derivation.marks
    )
