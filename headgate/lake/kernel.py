"""Appends by Delta Kernel, to tables with features that a log entry of our own would not keep.

Kernel computes what these features require of a commit, such as row ids. The files are added as
they were staged: no Spark job reads them and writes them again. The entry in the log is written as
all others are, because Kernel's own way to do so can replace that of another writer on S3.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import reduce
from itertools import count
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from headgate.lake.actions import now
from headgate.lake.commit import Commit
from headgate.lake.conflicts import Reads, Transaction, conflict
from headgate.lake.definition import TableDefinition
from headgate.lake.log import LogEntry, write_entry
from headgate.lake.open_tables import OpenTable, TableCache
from headgate.lake.staged import StagedFile
from headgate.lake.tables import CommitConflict, NotWritable, TableError, table_url

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KEPT = {
    "allowColumnDefaults",
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "clustering",
    "deletionVectors",
    "domainMetadata",
    "generatedColumns",
    "identityColumns",
    "inCommitTimestamp",
    "invariants",
    "rowTracking",
    "timestampNtz",
    "typeWidening",
    "typeWidening-preview",
    "v2Checkpoint",
    "vacuumProtocolCheck",
    "variantType",
    "variantType-preview",
}
"""Table features that an append by Kernel keeps, as long as no constraint is in force."""

_MAX_ATTEMPTS = 10
"""How often an append is tried while other writers append to the same table."""

_DEFAULT = "CURRENT_DEFAULT"


class KernelCommitter:
    """Appends staged files on the driver of Spark, in whose Java Kernel runs."""

    def __init__(
        self, spark: Callable[[], SparkSession], lake: str, tables: TableCache | None = None
    ) -> None:
        self.lake = lake
        self._tables = tables or TableCache(lake)
        self._start = spark
        self._starting = Lock()
        self._started: _Kernel | None = None

    def can_append(self, table: str) -> bool:
        """Whether Kernel keeps all features of a table, and its constraints need no check."""
        opened = self._open(table)
        return opened is not None and _obstacle(opened.definition) is None

    def commit(self, commit: Commit) -> int:
        """Append files to a table, and return its new version.

        Raises NotWritable, before anything is written, if that takes more than adding files.
        """
        for _ in range(_MAX_ATTEMPTS):
            opened = self._open(commit.table)
            if opened is None:
                raise NotWritable(f"Kernel does not append to {commit.table}: it cannot be opened")
            obstacle = _obstacle(opened.definition) or _obstacle_of(commit, opened.definition)
            if obstacle is not None:
                raise NotWritable(f"Kernel does not append to {commit.table}, which has {obstacle}")
            unmet = commit.unmet(opened)
            if unmet is not None:
                raise CommitConflict(f"table {commit.table} {unmet}")
            entry = self._append(commit, opened)
            if entry.is_written:
                return opened.version + 1
            _require_no_conflict(commit, opened, entry)
        raise CommitConflict(f"others keep changing table {commit.table}")

    def _open(self, table: str) -> OpenTable | None:
        try:
            return self._tables.newest(table)
        except TableError:
            return None

    def _append(self, commit: Commit, opened: OpenTable) -> _Entry:
        """Commit at the next version, unless another writer has made it."""
        kernel = self._kernel()
        url = table_url(self.lake, commit.table)
        statistics = {file.path: file.statistics for file in commit.files}
        entry = _Entry(kernel, url, statistics, is_blind=commit.based_on is None)
        with _not_writable(commit.table, entry):
            versions = kernel.find("TableManager").loadSnapshot(url).withCommitter(entry)
            table = versions.atVersion(opened.version).build(kernel.engine)
            if str(table.getMetadata().getId()) != opened.table_id:
                raise CommitConflict(f"table {commit.table} was replaced by another one")
            begun = table.buildUpdateTableTransaction("headgate", kernel.find("Operation").WRITE)
            transaction = begun.withMaxRetries(0).build(kernel.engine)
            actions = kernel.iterator(_actions(kernel, table, transaction, commit))
            listed = kernel.find("utils.CloseableIterable").inMemoryIterable(actions)
            done = transaction.commit(kernel.engine, listed)
            # The commit is made, whatever happens here: the next checkpoint makes up for this one.
            with suppress(Exception):
                for hook in done.getPostCommitHooks():
                    if str(hook.getType()) == "CHECKPOINT":
                        hook.threadSafeInvoke(kernel.engine)
        return entry

    def _kernel(self) -> _Kernel:
        with self._starting:
            if self._started is None:
                self._started = _Kernel.of(self._start())
            return self._started


class _Kernel:
    """Kernel's classes, by Java's view of the driver."""

    def __init__(self, java: Any, engine: Any) -> None:
        self.java = java.java
        self.engine = engine
        self._package = java.io.delta.kernel
        self._found: dict[str, Any] = {}

    @classmethod
    def of(cls, spark: SparkSession) -> _Kernel:
        """Raise NotWritable on clusters that do not have Kernel."""
        from pyspark.java_gateway import ensure_callback_server_started

        with _not_writable("any table"):
            java = spark._jvm
            assert java is not None
            settings = spark._jsparkSession.sessionState().newHadoopConf()
            engine = java.io.delta.kernel.defaults.engine.DefaultEngine.create(settings)
            ensure_callback_server_started(spark.sparkContext._gateway)  # type: ignore[no-untyped-call]
        return cls(java, engine)

    def find(self, name: str) -> Any:
        """Return a class of Kernel, for which Java has to be asked once per part of its name."""
        if name not in self._found:
            self._found[name] = reduce(getattr, name.split("."), self._package)
        return self._found[name]

    def iterator(self, values: Iterable[Any]) -> Any:
        """Return Java objects as Kernel iterates over them."""
        listed = self.java.util.ArrayList()
        for value in values:
            listed.add(value)
        return self.find("internal.util.Utils").toCloseableIterator(listed.iterator())


def _actions(kernel: _Kernel, table: Any, transaction: Any, commit: Commit) -> Iterator[Any]:
    """Yield the files and the marks of a commit as Kernel's actions."""
    state = transaction.getTransactionState(kernel.engine)
    physical = kernel.find("internal.data.TransactionStateRow").getPhysicalSchema(state)
    of_transactions, root = kernel.find("Transaction"), table.getPath()
    for file in commit.files:
        statistics = _statistics(kernel, file, physical)
        # A path without the scheme of the table's own would be written as an absolute one.
        added = kernel.find("utils.DataFileStatus")(
            f"{root}/{file.path}", file.size, now(), statistics
        )
        context = of_transactions.getWriteContext(
            kernel.engine, state, _partition(kernel, table, file)
        )
        found = of_transactions.generateAppendActions(
            kernel.engine, state, kernel.iterator([added]), context
        )
        while found.hasNext():
            yield found.next()
    for mark in commit.marks:
        version, at = (kernel.java.lang.Long.valueOf(number) for number in (mark.version, now()))
        marked = kernel.find("internal.actions.SetTransaction")(
            mark.app, version, kernel.java.util.Optional.of(at)
        )
        single = kernel.find("internal.actions.SingleAction")
        yield single.createTxnSingleAction(marked.toRow())


def _statistics(kernel: _Kernel, file: StagedFile, columns: Any) -> Any:
    """Return the statistics of a file, of which Kernel mostly needs the number of rows."""
    from py4j.protocol import Py4JError

    parser = kernel.find("statistics.DataFileStatistics")
    try:
        return parser.deserializeFromJson(file.statistics, columns)
    except Py4JError:
        # It reads timestamps with exactly three digits of a second's fraction.
        return parser.deserializeFromJson(json.dumps({"numRecords": file.rows}), columns)


def _partition(kernel: _Kernel, table: Any, file: StagedFile) -> Any:
    """Return the values of a file's partition columns as Kernel's literals."""
    values = kernel.java.util.HashMap()
    for name, value in (file.partition or {}).items():
        kind = table.getSchema().get(name).getDataType()
        literals = kernel.find("internal.util.PartitionUtils")
        values.put(name, literals.literalForPartitionValue(kind, value))
    return values


class _Entry:
    """Kernel's committer: writes the entry of a version, which Kernel calls from Java."""

    def __init__(
        self, kernel: _Kernel, url: str, statistics: Mapping[str, str], is_blind: bool
    ) -> None:
        self.url = url
        self.actions: tuple[Mapping[str, Any], ...] = ()
        self.is_reached = False
        """Whether Kernel has agreed to the commit."""
        self.is_written = False
        self.error: Exception | None = None
        self._kernel = kernel
        self._statistics = statistics
        self._is_blind = is_blind

    def commit(self, engine: Any, actions: Any, metadata: Any) -> Any:
        self.is_reached = True
        try:
            size = self._write(int(metadata.getVersion()), actions)
        except Exception as error:
            self.error = error  # which Java would only pass on as text
            raise
        if not self.is_written:
            raise CommitConflict("another writer has written this version")
        path = metadata.getPublishedDeltaFilePath()
        status = self._kernel.find("utils.FileStatus").of(path, size, now())
        published = self._kernel.find("internal.files.ParsedPublishedDeltaData")
        return self._kernel.find("commit.CommitResponse")(published.forFileStatus(status))

    def _write(self, version: int, actions: Any) -> int:
        """Write the entry unless there is one, and return its size."""
        to_json = self._kernel.find("defaults.internal.json.JsonUtils").rowToJson
        texts = []
        while actions.hasNext():
            texts.append(to_json(actions.next()))
        self.actions = tuple(map(json.loads, texts))
        for action in self.actions:
            if "commitInfo" in action:
                # Kernel says false of every commit, and then a DELETE of others conflicts with it.
                action["commitInfo"]["isBlindAppend"] = self._is_blind
            if "add" in action:
                # Kernel may not have read all of them.
                action["add"]["stats"] = self._statistics[unquote(action["add"]["path"])]
        self.is_written = write_entry(self.url, version, self.actions) is not None
        return sum(map(len, texts))

    class Java:
        implements = ("io.delta.kernel.commit.Committer",)


def _obstacle(table: TableDefinition) -> str | None:
    """Return what Kernel would break by adding files to a table, or leave unchecked."""
    others = table.protocol.features - _KEPT
    if others:
        return f"the table feature {', '.join(sorted(others))}"
    if table.is_mapped:
        return "column mapping"
    computed, defaults = table.constraints.computed, _defaults(table)
    reasons = [reason for name, reason in computed.items() if name not in defaults]
    return ", ".join((*table.constraints.checked, *reasons)) or None


def _defaults(table: TableDefinition) -> set[str]:
    """Return the columns with a default value, which files have to have."""
    columns = json.loads(table.metadata.schema_json)["fields"]
    return {column["name"] for column in columns if _DEFAULT in column["metadata"]}


def _obstacle_of(commit: Commit, table: TableDefinition) -> str | None:
    """Return what keeps a commit from adding files in which readers find the table's rows."""
    if commit.mode != "append" or commit.replaced_partitions or commit.removed:
        return "rows to replace"
    partition_by, defaults = {*table.metadata.partition_columns}, _defaults(table)
    for file in commit.files:
        names = {*file.schema.names}
        if {*(file.partition or ())} != partition_by or partition_by & names:
            return f"the partition columns ({', '.join(sorted(partition_by))})"
        if defaults - names:
            return f"a default for the missing column {', '.join(sorted(defaults - names))}"
    schemas = [commit.schema, *(file.schema for file in commit.files)]
    return "other columns" if any(_differs(schema, table) for schema in schemas) else None


def _differs(schema: pa.Schema, table: TableDefinition) -> bool:
    """Whether a schema has columns that a table lacks, or in another type."""
    types = {column.name: column.type for column in table.schema}
    return any(types.get(column.name) != column.type for column in schema)


def _require_no_conflict(commit: Commit, table: OpenTable, entry: _Entry) -> None:
    """Raise unless a commit may be prepared again after what others have committed since."""
    mine = Transaction(
        "",
        table.definition.metadata.id,
        entry.actions,
        Reads.NOTHING if commit.based_on is None else Reads.TABLE,
        frozenset(commit.required_marks),
    )
    with suppress(FileNotFoundError):
        for version in count(table.version + 1):
            found = conflict(mine, LogEntry.read(entry.url, version))
            if found is not None and (found.is_final or commit.based_on is not None):
                raise CommitConflict(f"table {commit.table} has changed: {found}")


@contextmanager
def _not_writable(table: str, entry: _Entry | None = None) -> Iterator[None]:
    """Raise what Kernel refuses, or lacks, as NotWritable, with the message of Java alone.

    Once it has agreed to a commit, that has come to an end, whatever Kernel fails to do afterwards.
    """
    from py4j.protocol import Py4JError

    try:
        yield
    except (Py4JError, TypeError) as error:  # calling a class that Java lacks is a TypeError
        if entry is not None and entry.error is not None:
            raise entry.error from None
        if entry is None or not entry.is_reached:
            text = str(getattr(error, "java_exception", None) or error)
            raise NotWritable(f"Kernel does not append to {table}: {text}") from error
