"""In a task: the rows that were computed for derived tables, committed table by table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import TableNotFoundError
from deltalake.transaction import create_table_with_add_actions

from headgate.change.change_log import ChangeLog
from headgate.change.fold import ends_of_runs
from headgate.change.table_key import TableKey
from headgate.gold.declared_gold import How
from headgate.land.commit_with_delta_rs import add_action, size_of
from headgate.land.write_parquet import write_parquet

TABLE = "_table"
COMMITTED = "table string, rows bigint, version bigint, error string"
_COMMITTED = pa.schema(
    [("table", pa.string()), ("rows", pa.int64()), ("version", pa.int64()), ("error", pa.string())]
)
_IN_MEMORY = 64 << 20
_AGE = "_headgate_age"


@dataclass(frozen=True)
class GoldCommit:
    """What a commit to one derived table needs to know beside its rows."""

    marks: Mapping[str, int]
    """By app: versions of the sources, of which the table then has everything."""
    how: How
    key: tuple[str, ...] = ()


def commit_gold(
    lake: str, commits: Mapping[str, GoldCommit], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Rows come in the order of their tables' names. A table's trouble is told, not raised."""
    pieces = (piece for batch in batches for piece in pieces_of(batch))
    for table, mine in groupby(pieces, key=lambda piece: piece[0]):
        rows = pa.Table.from_batches([batch for _, batch in mine])
        yield commit_rows(lake, table, rows, commits[table])


def commit_rows(lake: str, table: str, rows: pa.Table, commit: GoldCommit) -> pa.RecordBatch:
    try:
        version = _commit(lake, table, rows, commit)
        told = [table, len(rows), version, None]
    except Exception as error:  # one table's trouble is not the others'
        told = [table, len(rows), None, f"{type(error).__name__}: {error}"]
    return pa.RecordBatch.from_pylist(
        [dict(zip(_COMMITTED.names, told, strict=True))], schema=_COMMITTED
    )


def pieces_of(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    names = batch.column(TABLE).to_numpy(zero_copy_only=False)
    starts = np.concatenate([[0], np.flatnonzero(names[1:] != names[:-1]) + 1, [len(names)]])
    rows = batch.drop_columns([TABLE])
    for start, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        if end > start:
            yield str(names[start]), rows.slice(start, end - start)


def _commit(lake: str, name: str, rows: pa.Table, commit: GoldCommit) -> int:
    path = Path(lake, name)
    marks = [Transaction(app, version) for app, version in commit.marks.items()]
    properties = CommitProperties(app_transactions=marks)
    try:
        table = DeltaTable(str(path))
    except TableNotFoundError:
        file = write_parquet(lake, name, f"part-{uuid4()}.parquet", rows)
        schema = Schema.from_arrow(rows.schema)
        create_table_with_add_actions(
            str(path), schema, [add_action(file)], commit_properties=properties
        )
        return 0
    if all((table.transaction_version(app) or -1) >= to for app, to in commit.marks.items()):
        return int(table.version())
    there = pa.schema(table.schema())
    if commit.how == "replace" or (commit.how == "merge" and not commit.key):
        write_deltalake(
            table, rows, mode="overwrite", schema_mode="overwrite", commit_properties=properties
        )
    elif commit.how == "append":
        write_deltalake(
            table, rows, mode="append", schema_mode="merge", commit_properties=properties
        )
    elif size_of(table) <= _IN_MEMORY or there.types != rows.schema.types:
        _merge_in_memory(lake, name, table, rows, commit, properties)
    else:
        _merge(table, rows, commit.key, properties)
    table.update_incremental()
    return int(table.version())


def _merge_in_memory(
    lake: str,
    name: str,
    table: DeltaTable,
    rows: pa.Table,
    commit: GoldCommit,
    properties: CommitProperties,
) -> None:
    before = ChangeLog.of(table, Path(lake, name)).changes()
    after = replaced(before, rows, TableKey(commit.key))
    if after.schema.types != before.schema.types or after.schema.names != before.schema.names:
        write_deltalake(
            table, after, mode="overwrite", schema_mode="overwrite", commit_properties=properties
        )
        return
    file = write_parquet(lake, name, f"part-{uuid4()}.parquet", after)
    table.create_write_transaction(
        [add_action(file)], "overwrite", table.schema(), commit_properties=properties
    )


def replaced(before: pa.Table, new: pa.Table, key: TableKey) -> pa.Table:
    """All rows, new ones instead of those with the same key."""
    ages = [pa.array(np.full(len(part), age, np.int8)) for age, part in enumerate((before, new))]
    together = pa.concat_tables(
        [before.append_column(_AGE, ages[0]), new.append_column(_AGE, ages[1])],
        promote_options="permissive",
    )
    by = [(name, "ascending") for name in (*key.columns, _AGE)]
    ordered = together.take(pc.sort_indices(together, by))
    if not len(ordered):
        return before
    return ordered.filter(pa.array(ends_of_runs(ordered, key))).drop_columns([_AGE])


def _merge(
    table: DeltaTable, rows: pa.Table, key: tuple[str, ...], properties: CommitProperties
) -> None:
    same = " AND ".join(
        f'(row."{name}" = new."{name}" OR (row."{name}" IS NULL AND new."{name}" IS NULL))'
        for name in key
    )
    (
        table.merge(
            rows,
            same,
            source_alias="new",
            target_alias="row",
            streamed_exec=False,
            commit_properties=properties,
        )
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute()
    )
