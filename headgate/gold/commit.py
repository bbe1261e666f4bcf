"""In a task: the rows that were computed for derived tables, committed table by table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.transaction import create_table_with_add_actions

from headgate.lake.delta_rs import add_action, hooks_after
from headgate.lake.parquet import write_parquet
from headgate.lake.staged import StagedFile
from headgate.lake.tables import tables_kept_open

TABLE = "_table"
"""Which of the tables at hand a row is for, by its place among them: numbers are quicker to sort
and to compare than names."""
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
            files.append(_write(lake, table, portion))
        schema = files[0].schema
        return Committed(table, rows, _commit(lake, table, schema, files, derivation))
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


def _write(lake: str, table: str, rows: pa.Table) -> StagedFile:
    return write_parquet(lake, table, f"part-{uuid4()}.parquet", rows)


def _commit(
    lake: str, name: str, schema: pa.Schema, files: Iterable[StagedFile], derivation: Derivation
) -> int:
    """Files that are all rows, or more of them."""
    actions = [add_action(file) for file in files]
    table = tables_kept_open(lake).newest(name)
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
        post_commithook_properties=hooks_after(table),
    )
    return int(table.version()) + 1


def _has_marks(table: DeltaTable, derivation: Derivation) -> bool:
    """Whether a task that was run again has nothing left to do."""
    return all(
        (marked := table.transaction_version(app)) is not None and marked >= version
        for app, version in derivation.marks.items()
    )


def widen(table: DeltaTable, schema: pa.Schema) -> None:
    """Columns that the table lacks."""
    there = pa.schema(table.schema())
    if set(schema.names) - set(there.names):
        write_deltalake(table, schema.empty_table(), mode="append", schema_mode="merge")
        table.update_incremental()
