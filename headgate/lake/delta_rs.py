"""Commits by delta-rs: without a Spark job, in milliseconds, many tables in parallel."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from urllib.parse import unquote

import pyarrow as pa
from deltalake import (
    CommitProperties,
    DeltaTable,
    Schema,
    Transaction,
    write_deltalake,
)
from deltalake.exceptions import DeltaError
from deltalake.transaction import (
    AddAction,
    PostCommitHookProperties,
    RemoveAction,
    create_table_with_add_actions,
)

from headgate.config.storage import options_of
from headgate.lake.commit import Commit, Engine, Mark, MergeCommit, MergeCounts, TableState
from headgate.lake.compact import Compacted, can_combine, combine_files, files_to_combine
from headgate.lake.constraints import constraints_of
from headgate.lake.files import Identity
from headgate.lake.known_tables import KnownTables, has_new_columns
from headgate.lake.log import LogEntry, identify_entry, read_entries
from headgate.lake.merge import merge_into_files
from headgate.lake.open_tables import TableCache
from headgate.lake.parquet import ParquetRows, write_parquet
from headgate.lake.snapshot import DataFile, Snapshot
from headgate.lake.staged import StagedFile
from headgate.lake.staged_files import delete_staged
from headgate.lake.storage_errors import is_transient
from headgate.lake.tables import (
    CommitConflict,
    NotWritable,
    added_files,
    is_clean_up_due,
    open_version,
    table_url,
)
from headgate.schema.conform import conform_chunked


def rewrite_files(
    lake: str, table: str, actions: pa.Table, schema: pa.Schema
) -> Iterator[StagedFile]:
    """Write the rows of a table's files to new files in other types, one row group at a time.

    A column that a file lacks is missing from its rewritten file too; readers return nulls for it.
    """
    for path in actions.column("path").to_pylist():
        for rows in ParquetRows(f"{table_url(lake, table)}/{unquote(path)}").row_groups():
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
"""Table features that an append by delta-rs preserves, as long as no constraint is in force."""


_INTERVAL = "delta.checkpointInterval"
_DEFAULT_INTERVAL = 100
"""Number of versions between checkpoints that delta-rs writes for tables without that property."""
_CONFIGURATION = {_INTERVAL: "50"}
"""A checkpoint takes as long as ten appends, and every entry after it 0.2 ms to open the table."""

_RETENTION = "delta.deletedFileRetentionDuration"
_SHORT = "interval 1 hours"
"""How long checkpoints repeat that a file was removed. With a week, the default, they would list
all small files of that week."""

_WAITS = (0.2, 0.5, 1.0, 2.0, 4.0)
"""Seconds before each further attempt, after an object store has not answered."""
_RECENT = 20
"""Versions among which a commit without an answer is looked for."""

_MAX_MERGES = 4
"""How often a merge is tried that loses against commits of others."""


class DeltaRsCommitter:
    """The default committer: adds staged files to the log without reading or rewriting them.

    It works in a task of a Spark job as well as on the driver.
    """

    def __init__(self, lake: str, tables: TableCache | None = None) -> None:
        self.lake = lake
        self._tables = tables or TableCache(lake)
        self._just_read: dict[str, tuple[DeltaTable | None, pa.Schema]] = {}
        """Tables that `state` has read, for the commit that follows."""
        self._known = KnownTables(lake)
        self._obstacles: dict[str, tuple[DeltaTable, int, str | None]] = {}
        """What prevents a write to each table, and the version at which that was found."""

    def engine(self, table: str | Snapshot) -> Engine:
        return "delta-rs"

    def state(self, table: str, app: str) -> TableState | None:
        known = self._known.state(table, app)
        if known is not None:
            return known
        opened, schema = self._read(table)
        if opened is None:
            return None
        self._just_read[table] = opened, schema
        marked, obstacle = opened.transaction_version(app), self._obstacle(table, opened)
        state = TableState(opened.version(), schema, marked, obstacle)
        entry = self._tables.entry_of(table)
        self._remember(table, state.version, opened, entry, schema, {app: marked})
        return state

    def _remember(
        self,
        name: str,
        version: int,
        table: DeltaTable,
        entry: Identity | None,
        schema: pa.Schema,
        marks: Mapping[str, int | None],
    ) -> None:
        """Know a table that was just read, unless something prevents commits to it."""
        if self._obstacle(name, table) is None:
            checkpoints = _checkpoints(table.metadata().configuration)
            self._known.remember(name, version, entry, schema, marks, checkpoints)

    def schema_at(self, table: str, version: int) -> pa.Schema:
        return pa.schema(open_version(table_url(self.lake, table), version).schema())

    def can_rewrite(self, table: str, up_to: int) -> bool:
        newest = self._newest(table)
        if newest is None or not newest.is_plain or newest.bytes > up_to:
            return False
        return newest.constraints.allow_rewrite

    def commit(self, commit: Commit) -> int:
        for seconds in _WAITS:
            try:
                return self._commit(commit)
            except Exception as error:
                if not is_transient(self.lake, error):
                    raise
            # The store may have lost the request or only its response.
            time.sleep(seconds)
            committed = self._version_of(commit)
            if committed is not None:
                return committed
        return self._commit(commit)

    def _version_of(self, commit: Commit) -> int | None:
        """Return the version that a commit has made, if it is among the last ones."""
        opened = self._open(commit.table)
        if opened is None:
            return None
        newest, url = opened.version(), table_url(self.lake, commit.table)
        recent = read_entries(url, range(max(0, newest - _RECENT), newest + 1))
        return next((entry.version for entry in recent if _is_of(entry, commit)), None)

    def _commit(self, commit: Commit) -> int:
        read = self._just_read.pop(commit.table, None)
        committed = self._known.commit(commit)
        if committed is not None:
            return committed
        table, schema = self._read(commit.table) if read is None else read
        marks = {app: _marked(table, app) for app in commit.required_marks}
        for app, version in commit.required_marks.items():
            if marks[app] != version:
                raise CommitConflict(f"table {commit.table} is not at {version} of {app}")
        if table is None or commit.mode == "create":
            return self._create(commit, exists=table is not None)
        self._require_writable(commit.table, table)
        if commit.based_on is not None:
            _require_version(table, commit.table, commit.based_on)
        if read is None:
            entry = self._tables.entry_of(commit.table)
            self._remember(commit.table, table.version(), table, entry, schema, marks)
            committed = self._known.commit(commit)
            if committed is not None:
                return committed
        actions: list[AddAction | RemoveAction] = [add_action(file) for file in commit.files]
        actions += [
            RemoveAction(path, True, _now(), size, {}) for path, size in commit.removed.items()
        ]
        if commit.mode == "rewrite":
            rewritten = rewrite_files(self.lake, commit.table, added_files(table), commit.schema)
            actions = [*(add_action(file) for file in rewritten), *actions]
        elif commit.mode == "append" and has_new_columns(commit.schema, schema):
            write_deltalake(table, commit.schema.empty_table(), mode="append", schema_mode="merge")
            self._require_writable(commit.table, table)
        partitions = list(commit.replaced_partitions)
        keeps_rows = commit.mode == "append"
        table.create_write_transaction(
            [*actions],
            "append" if keeps_rows and not partitions else "overwrite",
            table.schema() if keeps_rows else Schema.from_arrow(commit.schema),
            partition_by=list(commit.partition_by),
            partition_filters=[(commit.partition_by[0], "in", partitions)] if partitions else None,
            commit_properties=_properties(
                commit.marks,
                # A retry would miss rows that other writers have added or changed.
                max_retries=0 if commit.mode == "rewrite" or commit.based_on is not None else None,
            ),
            post_commithook_properties=_post_commit_hooks(table),
        )
        return self._committed(table, commit)

    def merge(self, merge: MergeCommit) -> MergeCounts:
        changes = merge.changes
        if isinstance(changes, str):
            changes = ParquetRows(changes).read()
        if merge.based_on is None:
            for _ in range(_MAX_MERGES - 1):
                with suppress(CommitConflict):
                    return self._merge(merge, changes)
        return self._merge(merge, changes)

    def _merge(self, merge: MergeCommit, changes: pa.Table) -> MergeCounts:
        if merge.based_on is None:
            opened = self._newest(merge.table)
            assert opened is not None
            table = opened
        else:
            table = merge.based_on.table
        self._require_writable(merge.table, table.properties)
        self._require_rewritable(table)
        new = merge_into_files(table, changes, merge.rule, merge.based_on)
        counts = MergeCounts(table.version, new.inserted, new.updated, new.deleted)
        if not (new.files or new.removed or merge.marks):
            return counts
        commit = Commit(
            merge.table,
            table.schema,
            tuple(new.files),
            merge.marks,
            based_on=table.version,
            required_marks=merge.required_marks,
            removed=new.removed,
        )
        if not self._known.has(merge.table, table.version):
            entry = identify_entry(table.url, table.version)
            marks = {app: table.mark(app) for app in merge.required_marks}
            self._remember(table.table, table.version, table.properties, entry, table.schema, marks)
        with self._settled(table, new.files):
            self.commit(commit)
        return replace(counts, version=table.version + 1)

    def _require_rewritable(self, table: Snapshot) -> None:
        """Raise for tables whose files do not say all about their rows."""
        obstacle = None
        if not table.is_plain:
            obstacle = "deletion vectors or column mapping"
        elif table.partition_columns:
            obstacle = "partitions"
        elif table.constraints.append_only:
            obstacle = "delta.appendOnly"
        if obstacle is not None:
            raise NotWritable(f"files of {table.table} are not rewritten: it has {obstacle}")

    def compact(self, table: str, size: int, fewest: int = 2) -> Compacted:
        snapshot = self._newest(table)
        if snapshot is None:
            return Compacted()
        self._require_writable(table, snapshot.properties)
        if not can_combine(snapshot):
            raise NotWritable(f"files of {table} are not combined by delta-rs")
        groups = files_to_combine(snapshot, size, fewest)
        if groups:
            delta = snapshot.delta
            if _RETENTION not in delta.metadata().configuration:
                delta.alter.set_table_properties({_RETENTION: _SHORT})
            self._replace(snapshot, delta, groups)
        return Compacted.of(groups)

    def _replace(
        self, table: Snapshot, delta: DeltaTable, groups: Sequence[Sequence[DataFile]]
    ) -> None:
        """Replace each group of files by one with the same rows."""
        files = [combine_files(table, group) for group in groups]
        actions: list[AddAction | RemoveAction] = []
        for file, group in zip(files, groups, strict=True):
            # Readers that want rows in their order take files by time.
            actions.append(add_action(file, group[-1].modified, data_change=False))
            actions += [
                RemoveAction(one.path, False, _now(), one.size, dict(file.partition or {}))
                for one in group
            ]
        with self._settled(table, files):
            delta.create_write_transaction(
                actions,
                "append",
                delta.schema(),
                partition_by=list(table.partition_columns),
                post_commithook_properties=_post_commit_hooks(delta),
            )

    @contextmanager
    def _settled(self, table: Snapshot, files: Sequence[StagedFile]) -> Iterator[None]:
        """Delete files whose commit has lost against another one.

        If the response of a store is lost, a commit is repeated, and loses against itself.
        """
        try:
            yield
        except CommitConflict:
            if _has_added(table, files):
                return
            for file in files:
                delete_staged(self.lake, file)
            raise

    def _create(self, commit: Commit, exists: bool) -> int:
        url = table_url(self.lake, commit.table)
        configuration = {**_CONFIGURATION, **commit.properties}
        checkpoints = _checkpoints(configuration)
        # The log of a table that exists may no longer have its first entry.
        if not exists and self._known.create(commit, configuration, checkpoints):
            return 0
        create_table_with_add_actions(
            url,
            Schema.from_arrow(commit.schema),
            [add_action(file) for file in commit.files],
            mode="error",
            partition_by=list(commit.partition_by),
            description=commit.description,
            configuration=configuration,
            commit_properties=_properties(commit.marks),
            storage_options=options_of(url),
        )
        self._known.created(commit, checkpoints)
        return 0

    def _committed(self, table: DeltaTable, commit: Commit) -> int:
        """Return the version of the last commit: the next one, unless there are other writers."""
        version = table.version() + 1
        url = table_url(self.lake, commit.table)
        is_newest = identify_entry(url, version + 1) is None
        if not is_newest and not _has_marks(LogEntry.read(url, version), commit.marks):
            table.update_incremental()
            version = table.version()
        else:
            # The versions in between are those of this commit, so nothing else has changed.
            self._obstacles[commit.table] = table, version, None
        self._known.committed(commit, version, _checkpoints(table.metadata().configuration))
        return version

    def can_write(self, table: str | Snapshot) -> bool:
        """Whether delta-rs can write all features of a table and keep its constraints."""
        if isinstance(table, Snapshot):
            return self._obstacle(table.table, table.properties) is None
        try:
            opened = self._open(table)
        except NotWritable:
            return False
        return opened is None or self._obstacle(table, opened) is None

    def _read(self, table: str) -> tuple[DeltaTable | None, pa.Schema]:
        opened = self._open(table)
        return opened, pa.schema(opened.schema()) if opened else pa.schema([])

    def _open(self, table: str) -> DeltaTable | None:
        try:
            return self._tables.newest_read(table)
        except DeltaError as error:
            raise NotWritable(f"delta-rs cannot open {table}: {error}") from error

    def _newest(self, table: str) -> Snapshot | None:
        try:
            return Snapshot.newest(self.lake, table, self._tables)
        except DeltaError as error:
            raise NotWritable(f"delta-rs cannot open {table}: {error}") from error

    def _obstacle(self, name: str, table: DeltaTable) -> str | None:
        """Return what prevents a write; it is looked for again after commits of others."""
        known, version, obstacle = self._obstacles.get(name, (None, None, None))
        if known is not table or version != table.version():
            obstacle = _obstacle(table)
            self._obstacles[name] = table, table.version(), obstacle
        return obstacle

    def _require_writable(self, name: str, table: DeltaTable) -> None:
        if obstacle := self._obstacle(name, table):
            raise NotWritable(
                f"delta-rs cannot write to {name}, which has {obstacle}; `commit: auto` uses Spark"
            )


def _checkpoints(configuration: Mapping[str, str]) -> int:
    """Return the number of versions from one checkpoint of a log to the next."""
    return int(configuration.get(_INTERVAL, _DEFAULT_INTERVAL))


def _obstacle(table: DeltaTable) -> str | None:
    """Return what delta-rs would break by adding files to a table."""
    properties = table.metadata().configuration
    others = set(table.protocol().writer_features or ()) - _WRITABLE_FEATURES
    if others:
        return f"the table feature {', '.join(sorted(others))}"
    if properties.get("delta.columnMapping.mode", "none") != "none":
        return "column mapping"
    return str(constraints_of(table)) or None


def _marked(table: DeltaTable | None, app: str) -> int | None:
    return None if table is None else table.transaction_version(app)


def _require_version(table: DeltaTable, name: str, version: int) -> None:
    if table.version() != version:
        raise CommitConflict(f"table {name} has a newer version than {version}")


def _properties(marks: Sequence[Mark], max_retries: int | None = None) -> CommitProperties:
    transactions = [Transaction(mark.app, mark.version) for mark in marks]
    return CommitProperties(app_transactions=transactions or None, max_commit_retries=max_retries)


def _post_commit_hooks(table: DeltaTable) -> PostCommitHookProperties:
    """Return what delta-rs does after the next commit to a table."""
    every = _checkpoints(table.metadata().configuration)
    is_due = is_clean_up_due(table.version() + 2, every)
    return PostCommitHookProperties(cleanup_expired_logs=is_due)


def add_action(
    file: StagedFile, modified: int | None = None, data_change: bool = True
) -> AddAction:
    """Return the log action that adds a file."""
    return AddAction(
        path=file.path,
        size=file.size,
        partition_values=dict(file.partition or {}),
        modification_time=_now() if modified is None else modified,
        data_change=data_change,
        stats=file.statistics,
    )


def _now() -> int:
    return int(time.time() * 1000)


def _is_of(entry: LogEntry, commit: Commit) -> bool:
    """Whether an entry was written by a commit, which has files or marks of its own."""
    if commit.files:
        return _adds(entry, commit.files)
    return bool(commit.marks) and _has_marks(entry, commit.marks)


def _has_added(table: Snapshot, files: Sequence[StagedFile]) -> bool:
    """Whether a commit since a version of the table has added files, of which there is at least
    one."""
    with suppress(FileNotFoundError):
        for version in count(table.version + 1):
            if _adds(LogEntry.read(table.url, version), files):
                return True
    return False


def _adds(entry: LogEntry, files: Sequence[StagedFile]) -> bool:
    """Whether an entry adds any of some files."""
    added = {unquote(one["path"]) for one in entry.added_files}
    return not added.isdisjoint(file.path for file in files)


def _has_marks(entry: LogEntry, marks: Sequence[Mark]) -> bool:
    """Whether a commit in the log has all marks."""
    return {(one.app, one.version) for one in marks} <= entry.marks.items()
