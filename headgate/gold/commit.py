"""Commits of derived rows: tasks write the files, and the driver commits them, once per table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Self

import numpy as np
import pyarrow as pa

from headgate.gold.source_table import SourceRows, app_of_version
from headgate.lake.commit import Commit, Committer, Mark
from headgate.lake.merge import MEMORY_PER_FILE, split_into_files
from headgate.lake.parquet import stage_rows
from headgate.lake.snapshot import Snapshot
from headgate.lake.staged import StagedFile
from headgate.lake.storage import tables_at_once
from headgate.schema.conform import with_nullable_columns

TABLE = "_table"
"""Column with the index of the table that a row is for; integers sort faster than names."""
WRITTEN_DDL = f"{TABLE} int, file string, error string"
_MAX_HELD = 2 * MEMORY_PER_FILE
"""Bytes of rows that a task holds at a time."""


@dataclass(frozen=True)
class Derivation:
    """How to commit the rows of one derived table."""

    table: str
    before: Snapshot | None
    """The table that the rows are merged with, if it exists."""
    marks: tuple[Mark, ...]
    """Versions of the sources that the table includes after the commit."""
    appends: bool
    """Whether to append the rows, instead of replacing those of the table."""


def marks_of(table: Snapshot | None, marks: Iterable[Mark]) -> dict[str, int | None]:
    """Return the versions that a table has of the apps of some marks.

    An append requires them: another process may have derived the same rows.
    """
    return {mark.app: table.mark(mark.app) if table is not None else None for mark in marks}


def source_marks(app: str, rows: SourceRows, is_one_of_many: bool) -> Iterator[Mark]:
    """Yield the marks of a table that includes a version of a source.

    One of many sources also has a mark without its ID, which distinguishes a new source from one
    that was created again.
    """
    yield Mark(app_of_version(app, rows.source_id), rows.version)
    if is_one_of_many:
        yield Mark(app, rows.version)


@dataclass(frozen=True)
class Committed:
    """The result of one commit."""

    table: str
    rows: int
    version: int | None
    error: str | None = None

    @classmethod
    def failed(cls, table: str, error: Exception, rows: int = 0) -> Self:
        return cls(table, rows, None, f"{type(error).__name__}: {error}")


WriteRows = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A function for `mapInArrow`, called with rows that are sorted by table."""


def write_each(
    lake: str,
    tables: Sequence[str],
    key: Sequence[str] = (),
    partition: Callable[[int], Mapping[str, str]] | None = None,
    merge: Callable[[int, pa.Table], pa.Table | None] | None = None,
) -> WriteRows:
    """Return a function that writes rows, sorted by `TABLE`, to files of their tables.

    Each file of a large table has a range of keys. An error is part of the result: it must not fail
    the other tables. Where `merge` returns nothing, nothing is written, and that is the result.
    """

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for index, pieces in groupby(_pieces(batches), key=itemgetter(0)):
            try:
                of_table: Iterable[pa.Table] = (rows for _, rows in pieces)
                if merge is not None:
                    merged = merge(index, pa.concat_tables(of_table))
                    if merged is None:
                        yield _written(index, None, None)
                        continue
                    of_table = [merged]
                for held in _held(of_table):
                    for rows in split_into_files(held, key):
                        values = partition(index) if partition else None
                        file = stage_rows(
                            lake, tables[index], rows, partition=values, will_be_rewritten=True
                        )
                        yield _written(index, file.to_json(), None)
            except Exception as error:
                yield _written(index, None, f"{type(error).__name__}: {error}")

    return write


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.Table]]:
    """Yield consecutive rows of the same table, with its index."""
    for batch in batches:
        if not len(batch):
            continue
        indexes = batch[TABLE].to_numpy()
        starts = [0, *(np.flatnonzero(np.diff(indexes)) + 1).tolist(), len(batch)]
        rows = storable_columns(pa.Table.from_batches([batch.drop_columns([TABLE])]))
        for start, end in pairwise(starts):
            yield int(indexes[start]), rows.slice(start, end - start)


def _written(index: int, file: str | None, error: str | None) -> pa.RecordBatch:
    columns = [[index], [file], [error]]
    return pa.RecordBatch.from_arrays(
        [pa.array(one, field.type) for one, field in zip(columns, _WRITTEN, strict=True)],
        schema=_WRITTEN,
    )


_WRITTEN = pa.schema([(TABLE, pa.int32()), ("file", pa.string()), ("error", pa.string())])


def commit_all(
    committer: Committer,
    derivations: Sequence[Derivation],
    written: Sequence[tuple[int, str | None, str | None]],
) -> Iterator[Committed]:
    """Commit what tasks have written, given as rows of `WRITTEN_DDL`."""
    files: dict[int, list[StagedFile]] = {}
    failed: dict[int, str] = {}
    for index, file, error in written:
        if file is not None:
            files.setdefault(index, []).append(StagedFile.from_json(file))
        if error is not None:
            failed[index] = error

    def commit(index: int) -> Committed:
        derivation = derivations[index]
        if index in failed:
            return Committed(derivation.table, 0, None, failed[index])
        return commit_files(committer, derivation, files[index])

    with ThreadPoolExecutor(tables_at_once(committer.lake)) as pool:
        yield from pool.map(commit, sorted(files.keys() | failed.keys()))


def commit_files(
    committer: Committer, derivation: Derivation, files: Sequence[StagedFile]
) -> Committed:
    """Replace the rows of the table with those of the files, or append them.

    Without files, only the marks of a table are committed.
    """
    rows, before = sum(file.rows for file in files), derivation.before
    columns = before.schema if before and not files else files[0].schema
    commit = Commit(
        derivation.table,
        columns,
        tuple(files),
        derivation.marks,
        "append" if derivation.appends else "replace",
        based_on=None if derivation.appends or not before else before.version,
        required_marks=marks_of(before, derivation.marks) if derivation.appends else {},
    )
    try:
        return Committed(derivation.table, rows, committer.commit(commit))
    except Exception as error:  # must not fail the other tables
        return Committed.failed(derivation.table, error, rows)


def _held(pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield as many rows at a time as a task may hold in memory."""
    held: list[pa.Table] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += piece.nbytes
        if size > _MAX_HELD:
            yield pa.concat_tables(held)
            held, size = [], 0
    if held:
        yield pa.concat_tables(held)


def storable_columns(rows: pa.Table) -> pa.Table:
    """Return rows in the columns of a derived table, which may all be null.

    Spark knows that a count never is. Columns whose type is still unknown, because all their values
    are null, are dropped.
    """
    known = [field.name for field in rows.schema if not _has_null_type(field.type)]
    return with_nullable_columns(rows.select(known) if len(known) < rows.num_columns else rows)


def _has_null_type(kind: pa.DataType) -> bool:
    if pa.types.is_null(kind):
        return True
    return any(_has_null_type(kind.field(at).type) for at in range(kind.num_fields))
