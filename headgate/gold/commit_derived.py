"""In a task: the rows that were computed for derived tables, committed table by table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.transaction import create_table_with_add_actions

from headgate.land.commit_with_delta_rs import add_action
from headgate.land.open_table import open_table
from headgate.land.staged_file import StagedFile
from headgate.land.write_parquet import write_parquet

TABLE = "_table"
COMMITTED = "table string, rows bigint, version bigint, error string"
_LARGEST_FILE = 128 << 20


@dataclass(frozen=True)
class Derivation:
    """What a commit to one derived table needs to know beside its rows."""

    marks: Mapping[str, int]
    """By app: versions of the sources, of which the table then has everything."""
    appends: bool
    """Whether the rows are more of them, and not all that the table shall have."""

    @property
    def properties(self) -> CommitProperties:
        marks = [Transaction(app, version) for app, version in self.marks.items()]
        return CommitProperties(app_transactions=marks)


@dataclass(frozen=True)
class Committed:
    """How it went for one table."""

    table: str
    rows: int
    version: int | None
    error: str | None = None


def commit_derived(
    lake: str, derivations: Mapping[str, Derivation], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Rows come in the order of their tables' names. A table's trouble is told, not raised."""
    for table, pieces in pieces_by_name(batches, TABLE):
        told = commit_rows(lake, table, pieces, derivations[table])
        yield pa.RecordBatch.from_pylist([vars(told)], schema=_COMMITTED)


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
            files.append(_write(lake, table, portion))
        schema = files[0].schema
        return Committed(table, rows, _commit(lake, table, schema, files, derivation))
    except Exception as error:  # one table's trouble is not the others'
        return Committed(table, rows, None, f"{type(error).__name__}: {error}")


def pieces_by_name(
    batches: Iterable[pa.RecordBatch], column: str
) -> Iterator[tuple[str, Iterator[pa.Table]]]:
    """Rows that come in the order of a column of names: the rows of each name, without it."""
    pieces = (piece for batch in batches for piece in _pieces_of(batch, column))
    for name, mine in groupby(pieces, key=lambda piece: piece[0]):
        yield name, (rows for _, rows in mine)


def _pieces_of(batch: pa.RecordBatch, column: str) -> Iterator[tuple[str, pa.Table]]:
    names = batch.column(column).to_numpy(zero_copy_only=False)
    starts = np.concatenate([[0], np.flatnonzero(names[1:] != names[:-1]) + 1, [len(names)]])
    rows = pa.Table.from_batches([batch.drop_columns([column])])
    for start, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        if end > start:
            yield str(names[start]), rows.slice(start, end - start)


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


def _write(lake: str, table: str, rows: pa.Table) -> StagedFile:
    return write_parquet(lake, table, f"part-{uuid4()}.parquet", rows)


def _commit(
    lake: str, name: str, schema: pa.Schema, files: Iterable[StagedFile], derivation: Derivation
) -> int:
    """Files that are all rows, or more of them."""
    actions = [add_action(file) for file in files]
    table = open_table(Path(lake, name))
    if table is None:
        create_table_with_add_actions(
            str(Path(lake, name)),
            Schema.from_arrow(schema),
            actions,
            commit_properties=derivation.properties,
        )
        return 0
    if derivation.appends:
        if _has_marks(table, derivation):
            return int(table.version())
        widen(table, schema)
    table.create_write_transaction(
        [*actions],
        "append" if derivation.appends else "overwrite",
        table.schema() if derivation.appends else Schema.from_arrow(schema),
        commit_properties=derivation.properties,
    )
    return int(table.version()) + 1


def _has_marks(table: DeltaTable, derivation: Derivation) -> bool:
    """Whether a task that was run again has nothing left to do."""
    marked = {app: table.transaction_version(app) for app in derivation.marks}
    return all(
        (has := marked[app]) is not None and has >= version
        for app, version in derivation.marks.items()
    )


def widen(table: DeltaTable, schema: pa.Schema) -> None:
    """Columns that the table lacks."""
    there = pa.schema(table.schema())
    if set(schema.names) - set(there.names):
        write_deltalake(table, schema.empty_table(), mode="append", schema_mode="merge")
        table.update_incremental()
