"""Commits by delta-rs: no Spark job, some milliseconds a table, many tables side by side."""

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
from headgate.lake.tables import OpenTables, reads_as_it_is, size_of
from headgate.schema.conform import conform_chunked


def rewrite_files(
    lake: str, table: str, actions: pa.Table, schema: pa.Schema
) -> Iterator[StagedFile]:
    """All rows of the files that a table has, one row group at a time.

    Files are read as they are, one by one: a column that one of them lacks stays out of its
    successor as well, and every reader takes it for null.
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
"""What a plain append by delta-rs leaves intact. Append-only tables need nothing else."""


_CONFIGURATION = {"delta.checkpointInterval": "10"}
"""Between checkpoints, every commit is a file more to read for whoever opens the table."""

_CLEAN_UP_EVERY = 100
"""Versions: to find what has expired, all of a log is listed."""


class DeltaRsCommitter:
    """The default: files are named in the log as they are, nothing is read or written again."""

    def __init__(self, lake: str) -> None:
        self._lake = Path(lake)
        self._writable: dict[str, bool] = {}
        self._tables = OpenTables(lake)
        self._just_read: dict[str, tuple[DeltaTable | None, pa.Schema]] = {}
        """Up to date, for the commit that follows."""
        self._marks: dict[str, tuple[DeltaTable, int, Mark]] = {}
        """The versions that were committed here last, and what was marked in them."""

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
        return opened is not None and reads_as_it_is(opened) and size_of(opened) <= up_to

    def commit(self, commit: Commit) -> int:
        actions = [add_action(file) for file in commit.files]
        properties = CommitProperties(
            app_transactions=[Transaction(commit.mark.app, commit.mark.version)],
            # Rows that others add while all are rewritten would be left as they were.
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
            post_commithook_properties=hooks_after(table),
        )
        return self._committed(table, commit)

    def _committed(self, table: DeltaTable, commit: Commit) -> int:
        """The version of the commit just made: the next one, unless others write here too."""
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
        """Whether every feature of the table is one that delta-rs writes."""
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


def hooks_after(table: DeltaTable) -> PostCommitHookProperties:
    """What delta-rs does when it has committed the next version of a table."""
    return PostCommitHookProperties(
        cleanup_expired_logs=(table.version() + 1) % _CLEAN_UP_EVERY == 0
    )


def add_action(file: StagedFile) -> AddAction:
    """What the log says of a file."""
    return AddAction(
        path=file.path,
        size=file.size,
        partition_values=dict(file.partition or {}),
        modification_time=int(time.time() * 1000),
        data_change=True,
        stats=file.statistics,
    )


def _has_mark(entry: Path, mark: Mark) -> bool:
    """Whether an entry of a log is the commit of a mark."""
    actions = (json.loads(line) for line in entry.read_text().splitlines())
    marks = [action["txn"] for action in actions if "txn" in action]
    return any((one["appId"], one["version"]) == (mark.app, mark.version) for one in marks)


def _types(schema: pa.Schema) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in schema}
