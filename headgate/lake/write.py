"""Writes by delta-rs other than landing: replace, merge, mark.

All functions work in a task of a Spark job as well as on the driver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
from deltalake import (
    CommitProperties,
    DeltaTable,
    Schema,
    Transaction,
    WriterProperties,
    write_deltalake,
)
from deltalake.transaction import create_table_with_add_actions

from headgate.lake.commit import Mark
from headgate.lake.delta_rs import add_action, post_commit_hooks
from headgate.lake.parquet import write_parquet
from headgate.lake.snapshot import Snapshot, table_url
from headgate.lake.staged import StagedFile


@dataclass(frozen=True)
class MergeCounts:
    """Number of rows that a merge has changed, and the table's version after it."""

    version: int
    inserted: int = 0
    updated: int = 0
    deleted: int = 0


@dataclass(frozen=True)
class MergeClauses:
    """Clauses of a merge, as SQL over `row` and `change`."""

    on: str
    delete: str | None = None
    """Condition to delete a matched row."""
    update: str | None = None
    """Condition to update a matched row."""
    set: Mapping[str, str] | None = None
    """Values of an update by column; all columns of the change by default."""
    insert: str | None = None
    """Condition to insert a change that matches no row."""
    flag: str | None = None
    """Column of the changes that is not written to the table."""


def new_file(lake: str, table: str, rows: pa.Table) -> StagedFile:
    """Write rows to a file for the next commit to a table."""
    return write_parquet(lake, table, f"part-{uuid4()}.parquet", rows)


def commit_files(
    lake: str,
    table: str,
    snapshot: Snapshot | None,
    files: Sequence[StagedFile],
    *,
    schema: pa.Schema | None = None,
    marks: Sequence[Mark] = (),
    replace: bool = False,
    partition_by: Sequence[str] = (),
    replace_partitions: Sequence[str] = (),
) -> int:
    """Commit files with marks, and return the table's new version.

    The files are appended, or replace all rows or some partitions. With a schema, the table gets
    its columns; without one it keeps its own.
    """
    actions = [add_action(file) for file in files]
    properties = commit_properties(*marks)
    if snapshot is None:
        created = files[0].schema if schema is None else schema
        create_table_with_add_actions(
            table_url(lake, table),
            Schema.from_arrow(created),
            actions,
            partition_by=list(partition_by),
            commit_properties=properties,
        )
        return 0
    delta = snapshot.delta
    if schema is not None and not replace:
        add_columns(delta, schema)
    overwrites = replace or bool(replace_partitions)
    delta.create_write_transaction(
        [*actions],
        "overwrite" if overwrites else "append",
        Schema.from_arrow(schema) if replace and schema is not None else delta.schema(),
        partition_by=list(partition_by) or None,
        partition_filters=[(partition_by[0], "in", list(replace_partitions))]
        if replace_partitions
        else None,
        commit_properties=properties,
        post_commithook_properties=post_commit_hooks(delta),
    )
    return int(delta.version()) + 1


def replace_rows(lake: str, table: str, rows: pa.Table, *marks: Mark) -> int:
    """Replace the rows and columns of a table in one commit; return its new version."""
    url = table_url(lake, table)
    properties = commit_properties(*marks)
    write_deltalake(
        url, rows, mode="overwrite", schema_mode="overwrite", commit_properties=properties
    )
    return int(DeltaTable(url).version())


def create_table(lake: str, table: str, rows: pa.Table, description: str) -> None:
    """Create a table. Raises `TableError` if it exists."""
    write_deltalake(table_url(lake, table), rows, mode="error", description=description)


def describe_table(lake: str, table: str, description: str) -> int:
    """Set a table's description and return its number of rows."""
    delta = DeltaTable(table_url(lake, table))
    delta.alter.set_table_description(description)
    return int(delta.count())


def merge_rows(
    snapshot: Snapshot, rows: pa.Table, clauses: MergeClauses, *marks: Mark, compress: bool = False
) -> MergeCounts:
    """Merge rows into a table in one commit; set marks even if no row changes."""
    delta = snapshot.delta
    merge = delta.merge(
        rows,
        clauses.on,
        source_alias="change",
        target_alias="row",
        # With the source in memory, delta-rs skips files that cannot have its keys.
        streamed_exec=False,
        writer_properties=WriterProperties(compression="ZSTD") if compress else None,
        commit_properties=commit_properties(*marks),
    )
    without = [clauses.flag] if clauses.flag else None
    if clauses.delete is not None:
        merge = merge.when_matched_delete(clauses.delete)
    if clauses.set is not None:
        merge = merge.when_matched_update(dict(clauses.set), clauses.update)
    elif clauses.update is not None:
        merge = merge.when_matched_update_all(clauses.update, except_cols=without)
    if clauses.insert is not None:
        merge = merge.when_not_matched_insert_all(clauses.insert, except_cols=without)
    metrics = merge.execute()
    delta.update_incremental()
    for mark in marks:
        if delta.transaction_version(mark.app) != mark.version:
            set_mark(delta, mark)
    return MergeCounts(
        int(delta.version()),
        inserted=metrics["num_target_rows_inserted"],
        updated=metrics["num_target_rows_updated"],
        deleted=metrics["num_target_rows_deleted"],
    )


def fill_columns(
    snapshot: Snapshot, schema: pa.Schema, values: Mapping[str, str], where: str
) -> None:
    """Add missing columns to a table, and set values in the rows that match `where`."""
    add_columns(snapshot.delta, schema)
    snapshot.delta.update(dict(values), predicate=where)


def set_mark(delta: DeltaTable, mark: Mark) -> None:
    """Commit a mark without files."""
    delta.create_write_transaction(
        [], "append", delta.schema(), commit_properties=commit_properties(mark)
    )
    delta.update_incremental()


def ensure_mark(lake: str, table: str, mark: Mark) -> int:
    """Mark a table that another engine has written, if it lacks the mark; return its version."""
    delta = DeltaTable(table_url(lake, table))
    if delta.transaction_version(mark.app) != mark.version:
        set_mark(delta, mark)
    return int(delta.version())


def add_columns(delta: DeltaTable, schema: pa.Schema) -> None:
    """Add the columns that a table lacks."""
    current = pa.schema(delta.schema())
    if set(schema.names) - set(current.names):
        write_deltalake(delta, schema.empty_table(), mode="append", schema_mode="merge")
        delta.update_incremental()


def commit_properties(*marks: Mark) -> CommitProperties:
    return CommitProperties(
        app_transactions=[Transaction(mark.app, mark.version) for mark in marks] or None
    )
