"""In a task: the rows that were computed for derived tables, committed table by table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from headgate.lake.commit import Mark
from headgate.lake.snapshot import Snapshot
from headgate.lake.staged import StagedFile
from headgate.lake.write import commit_files, new_file

TABLE = "_table"
"""Which of the tables at hand a row is for, by its place among them: numbers are quicker to sort
and to compare than names."""
COMMITTED = "table string, rows bigint, version bigint, error string"
_LARGEST_FILE = 128 << 20


@dataclass(frozen=True)
class Derivation:
    """What a commit to one derived table needs to know beside its rows."""

    marks: tuple[Mark, ...]
    """Versions of the sources up to which the table then has everything."""
    appends: bool
    """Whether the rows are added to those of the table, and do not replace them."""


@dataclass(frozen=True)
class Committed:
    """How it went for one table."""

    table: str
    rows: int
    version: int | None
    error: str | None = None


Commit = Callable[[tuple[pa.Scalar, ...], Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What Spark runs for the rows of one table."""


def commit_each(lake: str, tables: Sequence[tuple[str, Derivation]]) -> Commit:
    """For rows that are grouped by the place of their table. A table's trouble is told, not
    raised."""

    def commit(
        key: tuple[pa.Scalar, ...], batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        name, derivation = tables[key[0].as_py()]
        told = commit_rows(lake, name, without_table(batches), derivation)
        yield pa.RecordBatch.from_pylist([vars(told)], schema=_COMMITTED)

    return commit


def without_table(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    for batch in batches:
        yield pa.Table.from_batches([batch.drop_columns([TABLE])])


_COMMITTED = pa.schema(
    [("table", pa.string()), ("rows", pa.int64()), ("version", pa.int64()), ("error", pa.string())]
)


def commit_rows(
    lake: str, table: str, pieces: Iterable[pa.Table], derivation: Derivation
) -> Committed:
    rows = 0
    try:
        files = []
        for portion in portions(pieces):
            rows += len(portion)
            files.append(new_file(lake, table, portion))
        return Committed(table, rows, _commit(lake, table, files, derivation))
    except Exception as error:  # one table's trouble is not the others'
        return Committed(table, rows, None, f"{type(error).__name__}: {error}")


def portions(pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """As many rows at once as one file shall have; at least one portion, be it empty."""
    held: list[pa.Table] = []
    size = written = 0
    for piece in map(typed, pieces):
        held.append(piece)
        size += piece.nbytes
        if size > _LARGEST_FILE:
            yield pa.concat_tables(held)
            held, size, written = [], 0, written + 1
    if size or not written:
        yield pa.concat_tables(held)


def typed(rows: pa.Table) -> pa.Table:
    """Without columns of which nobody knows the type yet: they are null in all rows."""
    known = [field.name for field in rows.schema if not _has_null_type(field.type)]
    return rows.select(known) if len(known) < rows.num_columns else rows


def _has_null_type(kind: pa.DataType) -> bool:
    if pa.types.is_null(kind):
        return True
    return any(_has_null_type(kind.field(at).type) for at in range(kind.num_fields))


def _commit(lake: str, name: str, files: Sequence[StagedFile], derivation: Derivation) -> int:
    """Commit files that are all rows of the table, or more of them."""
    there = Snapshot.newest(lake, name)
    if there is not None and derivation.appends and _has_marks(there, derivation):
        return there.version
    return commit_files(
        lake,
        name,
        there,
        files,
        schema=files[0].schema,
        marks=derivation.marks,
        replace=not derivation.appends,
    )


def _has_marks(table: Snapshot, derivation: Derivation) -> bool:
    """Whether a task that was run again has nothing left to do."""
    return all(
        (marked := table.mark(mark.app)) is not None and marked >= mark.version
        for mark in derivation.marks
    )
