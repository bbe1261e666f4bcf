"""Commits by delta-rs: no Spark job, some milliseconds a table, many tables side by side."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, create_table_with_add_actions

from headgate.land.committer import Commit, TableState

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


class DeltaRsCommitter:
    """The default: files are named in the log as they are, nothing is read or written again."""

    def __init__(self, lake: str) -> None:
        self._lake = Path(lake)
        self._writable: dict[str, bool] = {}
        self._just_read: dict[str, DeltaTable] = {}
        """Between state and commit of a table: to open it twice would double the time."""

    def state(self, table: str, app: str) -> TableState | None:
        opened = self._open(table)
        if opened is None:
            return None
        self._just_read[table] = opened
        return TableState(
            opened.version(), pa.schema(opened.schema()), opened.transaction_version(app)
        )

    def schema_at(self, table: str, version: int) -> pa.Schema:
        return pa.schema(DeltaTable(str(self._lake / table), version=version).schema())

    def commit(self, commit: Commit) -> int:
        actions = [
            AddAction(
                path=file.path,
                size=file.size,
                partition_values=dict(file.partition or {}),
                modification_time=int(time.time() * 1000),
                data_change=True,
                stats=file.statistics,
            )
            for file in commit.files
        ]
        properties = CommitProperties(
            app_transactions=[Transaction(commit.mark.app, commit.mark.version)]
        )
        table = self._just_read.pop(commit.table, None) or self._open(commit.table)
        if table is None:
            create_table_with_add_actions(
                str(self._lake / commit.table),
                Schema.from_arrow(commit.schema),
                actions,
                partition_by=list(commit.partition_by),
                description=commit.description,
                commit_properties=properties,
            )
            return 0
        if _types(pa.schema(table.schema())) != _types(commit.schema):
            write_deltalake(table, commit.schema.empty_table(), mode="append", schema_mode="merge")
        table.create_write_transaction(
            [*actions],
            "append",
            table.schema(),
            partition_by=list(commit.partition_by),
            commit_properties=properties,
        )
        table.update_incremental()
        return table.version()

    def can_write(self, table: str) -> bool:
        """Whether every feature of the table is one that delta-rs writes."""
        if table not in self._writable:
            try:
                opened = self._open(table)
                features = set(opened.protocol().writer_features or ()) if opened else set()
                self._writable[table] = features <= _WRITABLE_FEATURES
            except DeltaError:
                self._writable[table] = False
        return self._writable[table]

    def _open(self, table: str) -> DeltaTable | None:
        try:
            return DeltaTable(str(self._lake / table))
        except TableNotFoundError:
            return None


def _types(schema: pa.Schema) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in schema}
