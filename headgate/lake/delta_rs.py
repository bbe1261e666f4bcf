"""Commits by entries of the log: without a Spark job, in milliseconds, many tables in parallel.

delta-rs reads tables and writes checkpoints. It commits nothing: it would follow other commits
that replace the same files without changing rows, and double all of them.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from zlib import crc32

import pyarrow as pa
from deltalake import Schema
from deltalake.exceptions import DeltaError

from headgate.config.location import is_remote
from headgate.lake.actions import (
    Action,
    add_action,
    commit_info,
    definition_actions,
    mark_actions,
    now,
    remove_action,
)
from headgate.lake.commit import Commit, Engine, MergeCommit, MergeCounts, TableState, Work
from headgate.lake.compact import Compacted, can_combine, combine_files, files_to_combine
from headgate.lake.conflicts import Cause, Conflict, Reads, Transaction, conflict
from headgate.lake.definition import (
    IncompatibleColumns,
    TableDefinition,
    TableMetadata,
    required_protocol,
)
from headgate.lake.files import Identity
from headgate.lake.log import LogEntry, identify_entry, write_entry
from headgate.lake.merge import merge_into_files
from headgate.lake.open_tables import OpenTable, ReadTable, TableCache
from headgate.lake.parquet import ParquetRows, write_parquet
from headgate.lake.snapshot import DataFile, Snapshot
from headgate.lake.staged import StagedFile
from headgate.lake.staged_files import delete_staged
from headgate.lake.storage_errors import is_transient
from headgate.lake.tables import (
    CommitConflict,
    NotWritable,
    TableError,
    is_clean_up_due,
    open_version,
    table_url,
    write_checkpoint,
)
from headgate.schema.conform import conform_chunked

_INTERVAL = "delta.checkpointInterval"
_DEFAULT_INTERVAL = 100
"""Number of versions between checkpoints of tables without that property."""
_CONFIGURATION = {_INTERVAL: "50"}
"""A checkpoint takes as long as ten appends, and every entry after it 0.2 ms to open the table."""

_RETENTION = "delta.deletedFileRetentionDuration"
_SHORT = "interval 1 hours"
"""How long checkpoints repeat that a file was removed. With a week, the default, they would list
all small files of that week."""
_INERT = {_INTERVAL, _RETENTION, "delta.dataSkippingStatsColumns"}
"""Properties of new tables for which a table needs no feature."""

_WAITS = (0.2, 0.5, 1.0, 2.0, 4.0)
"""Seconds before each further attempt, after an object store has not answered."""
_MAX_ATTEMPTS = 10
"""How often a commit is prepared that loses against commits of others."""
_MAX_MERGES = 4
"""How often a merge or a compaction is tried that loses against commits of others."""


@dataclass(frozen=True)
class _Prepared:
    """A transaction, and the version of the table that it may follow."""

    opened: OpenTable
    transaction: Transaction
    written: tuple[StagedFile, ...] = ()
    """Files that were written for it."""


class _Lost(Exception):
    """Raised if a transaction cannot follow what others have committed."""

    def __init__(self, table: str, found: Conflict) -> None:
        super().__init__(f"table {table} has changed: {found}")
        self.conflict = found


class DeltaRsCommitter:
    """The default committer: adds staged files to the log without reading or rewriting them.

    It works in a task of a Spark job as well as on the driver.
    """

    def __init__(self, lake: str, tables: TableCache | None = None) -> None:
        self.lake = lake
        self._tables = tables or TableCache(lake)

    def engine(self, table: str | Snapshot, work: Work = "merge") -> Engine:
        return "delta-rs"

    def state(self, table: str, app: str) -> TableState | None:
        opened = self._open(table)
        if opened is None:
            return None
        obstacle = opened.definition.obstacle
        return TableState(opened.version, opened.schema, opened.mark(app), obstacle)

    def schema_at(self, table: str, version: int) -> pa.Schema:
        return pa.schema(open_version(table_url(self.lake, table), version).schema())

    def definition(self, table: str, version: int) -> TableDefinition | None:
        opened = self._tables.last(table)
        return opened.definition if opened is not None and opened.version == version else None

    def can_write(self, table: str | Snapshot) -> bool:
        """Whether entries of the log keep all features of a table, and its constraints."""
        return self._meets_nothing(table, lambda found: found.definition.obstacle)

    def can_merge(self, table: str | Snapshot) -> bool:
        """Whether changes can be merged into the files of a table."""
        return self._meets_nothing(table, lambda found: found.definition.obstacle_to_merge)

    def can_compact(self, table: str | Snapshot) -> bool:
        """Whether files of a table can be combined."""
        return self._meets_nothing(table, _obstacle_to_compaction)

    def _meets_nothing(
        self, table: str | Snapshot, obstacle: Callable[[Snapshot], str | None]
    ) -> bool:
        try:
            found = table if isinstance(table, Snapshot) else self._newest(table)
        except NotWritable:
            return False
        return found is None or obstacle(found) is None

    def can_rewrite(self, table: str, up_to: int) -> bool:
        newest = self._newest(table)
        return (
            newest is not None
            and newest.files_are_complete
            and newest.definition.obstacle_to_removal is None
            and newest.bytes <= up_to
        )

    def commit(self, commit: Commit) -> int:
        for _ in range(_MAX_ATTEMPTS):
            opened = self._base(commit)
            if opened is None or commit.mode == "create":
                return self._create(commit, exists=opened is not None)
            try:
                return self._write_or_delete(commit.table, self._prepare(opened, commit))
            except _Lost as lost:
                if commit.based_on is not None or lost.conflict.is_final:
                    raise CommitConflict(str(lost)) from None
        raise CommitConflict(f"others keep changing table {commit.table}")

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
        table = merge.based_on.table if merge.based_on is not None else self._newest(merge.table)
        if table is None:
            raise TableError(f"there is no table {merge.table}")
        obstacle = table.definition.obstacle_to_merge
        if obstacle is not None:
            raise NotWritable(
                f"changes are not merged into files of {table.table}: it has {obstacle}"
            )
        commit = Commit(
            merge.table,
            table.schema,
            (),
            merge.marks,
            based_on=table.version,
            required_marks=merge.required_marks,
        )
        self._require(table.opened, commit)
        new = merge_into_files(table, changes, merge.rule, merge.based_on)
        counts = MergeCounts(table.version, new.inserted, new.updated, new.deleted)
        if not (new.files or new.removed or merge.marks):
            return counts
        commit = replace(commit, files=tuple(new.files), removed=new.removed)
        prepared = replace(self._prepare(table.opened, commit), written=commit.files)
        try:
            return replace(counts, version=self._write_or_delete(merge.table, prepared))
        except _Lost as lost:
            raise CommitConflict(str(lost)) from None

    def compact(self, table: str, size: int, fewest: int = 2) -> Compacted:
        lost: _Lost | None = None
        for _ in range(_MAX_MERGES):
            snapshot = self._newest(table)
            if snapshot is None:
                return Compacted()
            obstacle = _obstacle_to_compaction(snapshot)
            if obstacle is not None:
                raise NotWritable(
                    f"files of {table} are left to Spark to combine: it has {obstacle}"
                )
            groups = files_to_combine(snapshot, size, fewest)
            if not groups:
                return Compacted()
            try:
                if _RETENTION in snapshot.definition.metadata.configuration:
                    self._combine(snapshot, groups)
                    return Compacted.of(groups)
                self._set_properties(snapshot, {_RETENTION: _SHORT})
            except _Lost as found:
                lost = found
        raise CommitConflict(str(lost))

    def _combine(self, table: Snapshot, groups: Sequence[Sequence[DataFile]]) -> None:
        """Replace each group of files by one with the same rows."""
        files = tuple(combine_files(table, group) for group in groups)
        actions: list[Action] = []
        for file, group in zip(files, groups, strict=True):
            # Readers that want rows in their order take files by time.
            actions.append(add_action(file, group[-1].modified, data_change=False))
            actions += [
                remove_action(old.path, old.size, file.partition or {}, data_change=False)
                for old in group
            ]
        transaction = _transaction(table.opened, "OPTIMIZE", actions, Reads.FILES)
        self._write_or_delete(table.table, _Prepared(table.opened, transaction, files))

    def _set_properties(self, table: Snapshot, properties: Mapping[str, str]) -> None:
        before = table.definition
        actions = definition_actions(before.with_properties(properties), before)
        transaction = _transaction(table.opened, "SET TBLPROPERTIES", actions, Reads.FILES)
        self._write(table.table, _Prepared(table.opened, transaction))

    def _base(self, commit: Commit) -> OpenTable | None:
        """Return the version that a commit is to follow."""
        last = self._tables.last(commit.table)
        if last is not None and last.is_fresh and commit.unmet(last) is None:
            return last  # `state` has just looked, and an entry of others is found by writing ours
        return self._open(commit.table)

    def _prepare(self, opened: OpenTable, commit: Commit) -> _Prepared:
        """Return the transaction of a commit; raise before anything is written if there is none."""
        self._require(opened, commit)
        removed = [remove_action(path, size, {}) for path, size in commit.removed.items()]
        written: tuple[StagedFile, ...] = ()
        if commit.mode != "append" or commit.replaced_partitions:
            table = Snapshot(self.lake, commit.table, opened.version, opened)
            removed = list(_removals(table, commit.replaced_partitions))
            if commit.mode == "rewrite":
                written = tuple(rewrite_files(table, commit.schema))
        before = opened.definition
        actions = [
            *definition_actions(_definition_after(before, commit), before),
            *mark_actions(commit.marks),
            *removed,
            *map(add_action, (*written, *commit.files)),
        ]
        adds = commit.mode == "append" and commit.based_on is None and not removed
        reads = Reads.NOTHING if adds else Reads.TABLE
        name = "MERGE" if commit.removed else "WRITE"
        apps = frozenset(commit.required_marks)
        return _Prepared(opened, _transaction(opened, name, actions, reads, apps), written)

    def _require(self, opened: OpenTable, commit: Commit) -> None:
        """Raise if a commit may not follow a version of its table."""
        table, definition = commit.table, opened.definition
        unmet = commit.unmet(opened)
        if unmet is not None:
            raise CommitConflict(f"table {table} {unmet}")
        adds = commit.mode == "append" and not (commit.removed or commit.replaced_partitions)
        obstacle = definition.obstacle if adds else definition.obstacle_to_removal
        partition_by = definition.metadata.partition_columns
        if commit.mode == "replace":
            partition_by = commit.partition_by
        divided = all({*(file.partition or ())} == {*partition_by} for file in commit.files)
        if obstacle is None and not divided:
            # Readers take the values of partition columns from the log, never from files.
            obstacle = f"the partition columns ({', '.join(partition_by)})"
        if obstacle is not None:
            raise NotWritable(
                f"entries of the log are not written to {table}, which has {obstacle}; "
                "`commit: auto` uses Spark"
            )

    def _write_or_delete(self, table: str, prepared: _Prepared) -> int:
        """Write the entry of a transaction, or delete the files that were written for it."""
        try:
            return self._write(table, prepared)
        except (_Lost, TableError):
            self._delete(prepared.written)
            raise

    def _delete(self, files: Iterable[StagedFile]) -> None:
        for file in files:
            delete_staged(self.lake, file)

    def _write(self, table: str, prepared: _Prepared) -> int:
        """Write the entry of a transaction; raise `_Lost` if others have committed against it."""
        opened, transaction = prepared.opened, prepared.transaction
        url = table_url(self.lake, table)
        is_recent = is_remote(url) and opened.is_fresh
        while True:
            version = opened.version + 1
            expected = opened.version
            if opened.entry is not None or is_recent:
                expected = version
                # The log shows other versions, but not that the table is another one with fewer.
                if not is_recent and identify_entry(url, opened.version) != opened.entry:
                    self._open(table)  # the next attempt begins with the table that is there now
                    raise _Lost(table, Conflict(Cause.TABLE, version))
                identity = self._entry_written(url, version, transaction)
                if identity is not None:
                    break
            newest, is_recent = self._open(table), True
            is_same = newest is not None and newest.table_id == opened.table_id
            if newest is None or not is_same or newest.version < expected:
                raise _Lost(table, Conflict(Cause.TABLE, version))
            entries = [self._entry(table, number) for number in range(version, newest.version + 1)]
            for entry in entries:
                if entry.transaction == transaction.id:
                    return entry.version  # written, but the response was lost
            conflicts = [found for entry in entries if (found := conflict(transaction, entry))]
            if conflicts:
                raise _Lost(table, max(conflicts, key=lambda found: found.is_final))
            opened = newest
        following = opened.followed_by(LogEntry(version, transaction.actions), identity)
        assert following is not None
        self._tables.put(table, following)
        self._checkpoint(table, following)
        return version

    def _entry_written(self, url: str, version: int, transaction: Transaction) -> Identity | None:
        """Write an entry, again and again if the store does not answer."""
        for seconds in _WAITS:
            try:
                return write_entry(url, version, transaction.actions)
            except Exception as error:
                if not is_transient(self.lake, error):
                    raise
            time.sleep(seconds)
        return write_entry(url, version, transaction.actions)

    def _entry(self, table: str, version: int) -> LogEntry:
        try:
            return LogEntry.read(table_url(self.lake, table), version)
        except FileNotFoundError:
            raise CommitConflict(f"the log of {table} lacks version {version}") from None

    def _checkpoint(self, table: str, opened: OpenTable) -> None:
        configuration = opened.definition.metadata.configuration
        interval = int(configuration.get(_INTERVAL, _DEFAULT_INTERVAL))
        # Tables that are committed to together have their checkpoints at different times.
        turn = opened.version + 1 + crc32(table.encode())
        if opened.version and turn % interval == 0:
            # The commit is made, whatever happens here: the next checkpoint makes up for this one.
            with suppress(TableError, OSError):
                write_checkpoint(table_url(self.lake, table), is_clean_up_due(turn, interval))

    def _create(self, commit: Commit, exists: bool) -> int:
        if exists:
            raise TableError(f"table {commit.table} already exists")
        if any(required is not None for required in commit.required_marks.values()):
            raise CommitConflict(f"there is no table {commit.table}")
        url = table_url(self.lake, commit.table)
        configuration = {**_CONFIGURATION, **commit.properties}
        if not configuration.keys() <= _INERT:
            raise NotWritable(f"properties of {commit.table} may need features, which Spark adds")
        metadata = TableMetadata(
            str(uuid.uuid4()),
            Schema.from_arrow(commit.schema).to_json(),
            commit.partition_by,
            configuration,
            description=commit.description,
            created=now(),
        )
        definition = TableDefinition(required_protocol(metadata), metadata)
        created = OpenTable(ReadTable.before_creation(url, definition), definition)
        actions = [
            *definition_actions(definition),
            *mark_actions(commit.marks),
            *map(add_action, commit.files),
        ]
        transaction = _transaction(created, "WRITE", actions)
        identity = self._entry_written(url, 0, transaction)
        if identity is None:
            raise CommitConflict(f"table {commit.table} was created by another writer")
        following = created.followed_by(LogEntry(0, transaction.actions), identity)
        assert following is not None
        self._tables.put(commit.table, following)
        return 0

    def _open(self, table: str) -> OpenTable | None:
        try:
            return self._tables.newest(table)
        except DeltaError as error:
            raise NotWritable(f"delta-rs cannot open {table}: {error}") from error

    def _newest(self, table: str) -> Snapshot | None:
        opened = self._open(table)
        return None if opened is None else Snapshot(self.lake, table, opened.version, opened)


def rewrite_files(table: Snapshot, schema: pa.Schema) -> Iterator[StagedFile]:
    """Write the rows of a table's files to new files in other types, one row group at a time.

    A column that a file lacks is missing from its rewritten file too; readers return nulls for it.
    """
    for file in table.files:
        for rows in ParquetRows(file).row_groups():
            columns = [
                conform_chunked(rows.column(name), schema.field(name).type)
                for name in rows.column_names
            ]
            name = f"part-widened-{uuid.uuid4()}.parquet"
            widened = pa.table(columns, names=rows.column_names)
            yield write_parquet(table.lake, table.table, name, widened)


def _obstacle_to_compaction(table: Snapshot) -> str | None:
    obstacle = table.definition.obstacle_to_compaction
    if obstacle is None and not can_combine(table):
        return f"the partitions {', '.join(table.partition_columns)}"
    return obstacle


def _removals(table: Snapshot, partitions: Sequence[str]) -> Iterator[Action]:
    """Yield the removals of all files of a table, or of those of some partitions."""
    for path, size in table.sizes.items():
        if not table.partition_columns:
            yield remove_action(path, size, {})
            continue
        value = table.partition_of(path) if table.has_simple_partitions else None
        if not partitions or value in partitions:
            (column, *_) = table.partition_columns
            values = {column: value} if table.has_simple_partitions else None
            yield remove_action(path, size, values)


def _definition_after(before: TableDefinition, commit: Commit) -> TableDefinition:
    """Return what a commit makes of the columns of a table."""
    if commit.mode == "append":
        if not _has_new_columns(commit.schema, before.schema):
            return before
        try:
            return before.with_columns(commit.schema)
        except IncompatibleColumns as error:
            raise TableError(f"table {commit.table}: {error}") from None
    partition_by = before.metadata.partition_columns
    if commit.mode == "replace":
        partition_by = commit.partition_by
    same = commit.schema.equals(before.schema, check_metadata=True)
    if same and partition_by == before.metadata.partition_columns:
        return before
    return before.replaced_by(commit.schema, partition_by)


def _has_new_columns(wanted: pa.Schema, current: pa.Schema) -> bool:
    """Whether a table lacks columns, or nested fields of them."""
    if wanted is current:
        return False
    types = {field.name: field.type for field in current}
    return any(types.get(field.name) != field.type for field in wanted)


def _transaction(
    opened: OpenTable,
    operation: str,
    actions: Iterable[Action],
    reads: Reads = Reads.NOTHING,
    read_apps: frozenset[str] = frozenset(),
) -> Transaction:
    """Return a transaction that says in its entry what it does."""
    identity, listed = str(uuid.uuid4()), tuple(actions)
    mode = "Overwrite" if any("remove" in action for action in listed) else "Append"
    partition_by = opened.definition.metadata.partition_columns
    info = commit_info(identity, operation, mode, partition_by, reads is Reads.NOTHING)
    return Transaction(identity, opened.table_id, (info, *listed), reads, read_apps)
