"""Commits by delta-rs: without a Spark job, in milliseconds, many tables in parallel."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import DeltaError
from deltalake.transaction import (
    AddAction,
    PostCommitHookProperties,
    create_table_with_add_actions,
)

from headgate.lake.commit import Commit, Mark, TableState
from headgate.lake.parquet import write_parquet
from headgate.lake.staged import StagedFile
from headgate.lake.tables import TableCache, is_plain_parquet, size_of
from headgate.schema.conform import conform_chunked


def rewrite_files(
    lake: str, table: str, actions: pa.Table, schema: pa.Schema
) -> Iterator[StagedFile]:
    """Write the rows of a table's files to new files in other types, one row group at a time.

    A column that a file lacks is missing from its rewritten file too; readers return nulls for it.
    """
    for path in actions.column("path").to_pylist():
        source = pq.ParquetFile(Path(lake, table, unquote(path)))
        for group in range(source.num_row_groups):
            rows = source.read_row_group(group)
            columns = [
                conform_chunked(rows.column(name), schema.field(name).type)
                for name in rows.column_names
            ]
            name = f"part-widened-{uuid.uuid4()}.parquet"
            yield write_parquet(lake, table, name, pa.table(columns, names=rows.column_names))


_WRITABLE_FEATURES = {
    "appendOnly",
    "invariants",
    "checkConstraints",
    "changeDataFeed",
    "generatedColumns",
    "deletionVectors",
    "timestampNtz",
    "v2Checkpoint",
    "variantType",
    "variantType-preview",
}
"""Table features that an append by delta-rs preserves."""


_CONFIGURATION = {"delta.checkpointInterval": "10"}
"""A frequent checkpoint: every commit after it is another file to read to open the table."""

_CLEAN_UP_EVERY = 100
"""Number of versions between clean-ups, which list the whole log."""


class DeltaRsCommitter:
    """The default committer: adds staged files to the log without reading or rewriting them."""

    def __init__(self, lake: str) -> None:
        self._lake = Path(lake)
        self._writable: dict[str, bool] = {}
        self._tables = TableCache(lake)
        self._just_read: dict[str, tuple[DeltaTable | None, pa.Schema]] = {}
        """Tables that `state` has read, for the commit that follows."""
        self._marks: dict[str, tuple[DeltaTable, int, Mark]] = {}
        """The newest commits of this process: table, version and mark."""

    def state(self, table: str, app: str) -> TableState | None:
        opened = self._tables.newest(table)
        if opened is None:
            return None
        schema = pa.schema(opened.schema())
        self._just_read[table] = opened, schema
        return TableState(opened.version(), schema, self._marked(table, opened, app))

    def schema_at(self, table: str, version: int) -> pa.Schema:
        return pa.schema(DeltaTable(str(self._lake / table), version=version).schema())

    def can_rewrite(self, table: str, up_to: int) -> bool:
        opened = self._tables.newest(table)
        return opened is not None and is_plain_parquet(opened) and size_of(opened) <= up_to

    def commit(self, commit: Commit) -> int:
        actions = [add_action(file) for file in commit.files]
        properties = CommitProperties(
            app_transactions=[Transaction(commit.mark.app, commit.mark.version)],
            # A retry would miss rows that other writers add during a rewrite.
            max_commit_retries=0 if commit.rewrite else None,
        )
        read = self._just_read.pop(commit.table, None)
        table, schema = self._read(commit.table) if read is None else read
        if table is None:
            create_table_with_add_actions(
                str(self._lake / commit.table),
                Schema.from_arrow(commit.schema),
                actions,
                partition_by=list(commit.partition_by),
                description=commit.description,
                configuration=_CONFIGURATION,
                commit_properties=properties,
            )
            return 0
        if commit.rewrite:
            rewritten = rewrite_files(
                str(self._lake), commit.table, pa.table(table.get_add_actions()), commit.schema
            )
            actions = [*(add_action(file) for file in rewritten), *actions]
        elif schema is not commit.schema and _types(schema) != _types(commit.schema):
            write_deltalake(table, commit.schema.empty_table(), mode="append", schema_mode="merge")
        table.create_write_transaction(
            [*actions],
            "overwrite" if commit.rewrite else "append",
            Schema.from_arrow(commit.schema) if commit.rewrite else table.schema(),
            partition_by=list(commit.partition_by),
            commit_properties=properties,
            post_commithook_properties=post_commit_hooks(table),
        )
        return self._committed(table, commit)

    def _committed(self, table: DeltaTable, commit: Commit) -> int:
        """Return the version of the last commit: the next one, unless there are other writers."""
        version = table.version() + 1
        log = self._lake / commit.table / "_delta_log"
        is_newest = not (log / f"{version + 1:020d}.json").exists()
        if not is_newest and not _has_mark(log / f"{version:020d}.json", commit.mark):
            table.update_incremental()
            version = table.version()
        self._marks[commit.table] = table, version, commit.mark
        return version

    def _marked(self, table: str, opened: DeltaTable, app: str) -> int | None:
        same, version, mark = self._marks.get(table, (None, None, None))
        if same is opened and version == opened.version() and mark and mark.app == app:
            return mark.version
        return opened.transaction_version(app)

    def can_write(self, table: str) -> bool:
        """Whether delta-rs can write all features of a table."""
        if table not in self._writable:
            try:
                opened = self._tables.newest(table)
                features = set(opened.protocol().writer_features or ()) if opened else set()
                self._writable[table] = features <= _WRITABLE_FEATURES
            except DeltaError:
                self._writable[table] = False
        return self._writable[table]

    def _read(self, table: str) -> tuple[DeltaTable | None, pa.Schema]:
        opened = self._tables.newest(table)
        return opened, pa.schema(opened.schema()) if opened else pa.schema([])


def post_commit_hooks(table: DeltaTable) -> PostCommitHookProperties:
    """Return what delta-rs does after the next commit to a table."""
    return PostCommitHookProperties(
        cleanup_expired_logs=(table.version() + 1) % _CLEAN_UP_EVERY == 0
    )


def add_action(file: StagedFile) -> AddAction:
    """Return the log action that adds a file."""
    return AddAction(
        path=file.path,
        size=file.size,
        partition_values=dict(file.partition or {}),
        modification_time=int(time.time() * 1000),
        data_change=True,
        stats=file.statistics,
    )


def _has_mark(entry: Path, mark: Mark) -> bool:
    """Whether a commit in the log has a mark."""
    actions = (json.loads(line) for line in entry.read_text().splitlines())
    marks = [action["txn"] for action in actions if "txn" in action]
    return any((one["appId"], one["version"]) == (mark.app, mark.version) for one in marks)


def _types(schema: pa.Schema) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in schema}
