"""Commits by Spark's Delta writer, for tables that delta-rs cannot write.

Much slower than delta-rs: Spark reads the staged files and writes them again. It is for tables with
features that delta-rs lacks, and for users who want Delta's own writer for every commit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property, reduce
from threading import Lock
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headgate.lake.commit import Commit, Engine, Mark, MergeCommit, MergeCounts, TableState, Work
from headgate.lake.compact import Compacted
from headgate.lake.constraints import Constraints
from headgate.lake.definition import TableDefinition
from headgate.lake.parquet import stage_merge
from headgate.lake.snapshot import Snapshot
from headgate.lake.staged_files import delete_staged
from headgate.lake.storage import delete_file
from headgate.lake.tables import CommitConflict, TableError, table_url

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


_APP = "spark.databricks.delta.write.txnAppId"
_VERSION = "spark.databricks.delta.write.txnVersion"
_NO_MARK = -1
"""What Delta reports for an app that has not marked the table."""


class SparkCommitter:
    """Commits with the reference implementation of Delta."""

    def __init__(self, spark: Callable[[], SparkSession], lake: str) -> None:
        self.lake = lake
        self._start = spark
        self._one_merge_at_a_time = Lock()
        """The mark of a merge is a setting of the session, and so is the size for a compaction."""

    @cached_property
    def _spark(self) -> SparkSession:
        return self._start()

    def engine(self, table: str | Snapshot, work: Work = "merge") -> Engine:
        return "spark"

    def state(self, table: str, app: str) -> TableState | None:
        snapshot = self._snapshot(table)
        if snapshot.version() < 0:
            return None
        schema = self.schema_at(table, int(snapshot.version()))
        marks = snapshot.transactions()
        marked = int(marks.apply(app)) if marks.contains(app) else None
        return TableState(int(snapshot.version()), schema, marked)

    def schema_at(self, table: str, version: int) -> pa.Schema:
        return _arrow_schema(self._spark, table_url(self.lake, table), version)

    def definition(self, table: str, version: int) -> TableDefinition | None:
        return None

    def can_rewrite(self, table: str, up_to: int) -> bool:
        if not self._constraints(self._snapshot(table)).allow_rewrite:
            return False
        detail = self._spark.sql(f"DESCRIBE DETAIL {self._name(table)}").head()
        if detail is None or detail["partitionColumns"]:
            return False  # new columns would come without the partitioning
        return int(detail["sizeInBytes"]) <= up_to

    def commit(self, commit: Commit, rows: DataFrame | None = None) -> int:
        """Commit the staged files, or other rows."""
        snapshot = self._snapshot(commit.table)
        version = int(snapshot.version())
        constraints = self._constraints(snapshot)
        if constraints and commit.mode == "rewrite":
            # New metadata of the columns would not have their constraints.
            raise TableError(f"columns of {commit.table} are not widened: it has {constraints}")
        if rows is None:
            rows = self._staged_rows(commit, constraints)
        if commit.based_on is not None and commit.based_on != version:
            raise CommitConflict(f"table {commit.table} has version {version} already")
        if version >= 0 and commit.mode == "create":
            raise TableError(f"table {commit.table} already exists")
        with _errors_of_delta():
            options = _options(commit, keep_columns=bool(constraints))
            if version < 0 and len(commit.marks) <= 1 and not commit.required_marks:
                self._create(commit, rows)
            elif commit.marks or commit.required_marks:
                self._commit_with_marks(commit, rows, options, is_new=version < 0)
                if version < 0:
                    self._describe(commit)
            else:
                writer = rows.write.format("delta").mode(_save_mode(commit))
                writer.options(**options).save(table_url(self.lake, commit.table))
        for file in commit.files:
            delete_staged(self.lake, file)
        return self._version(commit.table)

    def merge(self, merge: MergeCommit) -> MergeCounts:
        changes = merge.changes
        read = merge.based_on.table.version if merge.based_on is not None else None
        if read is not None and read != self._version(merge.table):
            raise CommitConflict(f"table {merge.table} has a newer version than {read}")
        for app, required in merge.required_marks.items():
            self._require_mark(merge.table, app, required)
        staged = (
            changes if isinstance(changes, str) else stage_merge(self.lake, merge.table, changes)
        )
        with self._one_merge_at_a_time, self._marked(merge.marks), _errors_of_delta():
            source = self._spark.read.parquet(staged)
            source.createOrReplaceTempView("headgate_changes")
            try:
                counts = self._spark.sql(self._merge_sql(merge, source.columns)).head()
            finally:
                self._spark.catalog.dropTempView("headgate_changes")
        delete_file(staged)
        assert counts is not None
        for mark in merge.marks:
            state = self.state(merge.table, mark.app)
            if state is not None and state.marked != mark.version:
                # A merge that changes no row does not commit.
                marked = {mark.app: state.marked}
                self.commit(Commit(merge.table, state.schema, (), (mark,), required_marks=marked))
        return MergeCounts(
            self._version(merge.table),
            inserted=int(counts["num_inserted_rows"]),
            updated=int(counts["num_updated_rows"]),
            deleted=int(counts["num_deleted_rows"]),
        )

    def compact(self, table: str, size: int, fewest: int = 2) -> Compacted:
        if self._version(table) < 0 or self._number_of_files(table) < fewest:
            return Compacted()
        sizes = {"minFileSize": str(size), "maxFileSize": str(size)}
        settings = {f"spark.databricks.delta.optimize.{key}": one for key, one in sizes.items()}
        with self._one_merge_at_a_time, self._set(settings), _errors_of_delta():
            (result,) = self._spark.sql(f"OPTIMIZE {self._name(table)}").collect()
        done = result.metrics
        return Compacted(
            done.numFilesRemoved, int(done.filesRemoved.totalSize or 0), done.numFilesAdded
        )

    def _number_of_files(self, table: str) -> int:
        (detail,) = self._spark.sql(f"DESCRIBE DETAIL {self._name(table)}").collect()
        return int(detail.numFiles)

    def _create(self, commit: Commit, rows: DataFrame) -> None:
        writer = rows.write.format("delta").partitionBy(*commit.partition_by)
        writer = writer.options(**commit.properties, **_mark_options(commit.marks))
        writer.save(table_url(self.lake, commit.table))
        self._describe(commit)

    def _describe(self, commit: Commit) -> None:
        if commit.description is not None:
            name, description = self._name(commit.table), _literal(commit.description)
            self._spark.sql(f"COMMENT ON TABLE {name} IS {description}")

    def _require_mark(self, table: str, app: str, required: int | None) -> None:
        state = self.state(table, app)
        if state is not None and state.marked != required:
            raise CommitConflict(f"table {table} is not at {required} of {app}")

    def _commit_with_marks(
        self, commit: Commit, rows: DataFrame, given: Mapping[str, str], is_new: bool
    ) -> None:
        """Commit with marks by the class that Delta itself uses.

        Its public interface has an option for one mark, with which a commit whose mark the table
        has already is skipped in silence.
        """
        jvm = self._jvm
        delta, none = jvm.org.apache.spark.sql.delta, jvm.scala.Option.empty()
        scala = jvm.org.apache.spark.api.python.PythonUtils
        session = self._spark._jsparkSession
        mode = getattr(jvm.org.apache.spark.sql.SaveMode, _save_mode(commit).capitalize())
        log = delta.DeltaLog.forTable(session, table_url(self.lake, commit.table))
        options = delta.DeltaOptions(scala.toScalaMap(dict(given)), session.sessionState().conf())
        transaction = log.startTransaction(none, none)
        # Delta detects concurrent commits of the apps that a transaction has read.
        for app, required in commit.required_marks.items():
            found = int(transaction.txnVersion(app))
            if found != (_NO_MARK if required is None else required):
                raise CommitConflict(f"table {commit.table} is not at {required} of {app}")
        for mark in commit.marks:
            is_read = mark.app in commit.required_marks
            if int(transaction.txnVersion(mark.app)) > mark.version and not is_read:
                raise CommitConflict(f"table {commit.table} has a later mark of {mark.app}")
        # A table that exists keeps its own partitioning.
        divides = is_new or _save_mode(commit) == "overwrite"
        write = delta.commands.WriteIntoDelta(
            log,
            mode,
            options,
            scala.toSeq(list(commit.partition_by) if divides else []),
            scala.toScalaMap(dict(commit.properties)),
            rows._jdf,
            none,
            none,
            False,
        )
        written = write.write(transaction, session, none, False)
        actions = jvm.java.util.ArrayList(
            jvm.scala.jdk.javaapi.CollectionConverters.asJava(written)
        )
        for mark in commit.marks:
            actions.add(delta.actions.SetTransaction(mark.app, mark.version, none))
        operation = getattr(delta, "DeltaOperations$Write")(mode, *[none] * 8)
        transaction.commit(scala.toSeq(actions), operation)

    def _marked(self, marks: Sequence[Mark]) -> AbstractContextManager[None]:
        """Have a merge write a mark, for which SQL has no option."""
        settings: dict[str, str] = {}
        for mark in marks:
            settings |= {_APP: mark.app, _VERSION: str(mark.version)}
        return self._set(settings)

    @contextmanager
    def _set(self, settings: Mapping[str, str]) -> Iterator[None]:
        """Change settings of the session for a statement."""
        for key, value in settings.items():
            self._spark.conf.set(key, value)
        try:
            yield
        finally:
            for key in settings:
                self._spark.conf.unset(key)

    def _merge_sql(self, merge: MergeCommit, columns: Sequence[str]) -> str:
        rule = merge.rule
        names = [f"`{name}`" for name in columns if name not in (rule.deleted, rule.insert)]
        on = " AND ".join(f"row.`{name}` <=> change.`{name}`" for name in rule.key)
        met = []
        if rule.newer is not None:
            met.append(f"change.`{rule.newer}` > row.`{rule.newer}`")
        if rule.only is not None:
            met.append(f"row.`{rule.only[0]}` = {_literal(rule.only[1])}")
        kept = [f"NOT change.`{rule.deleted}`"] if rule.deleted else []
        parts = [f"MERGE INTO {self._name(merge.table)} AS row USING headgate_changes AS change"]
        parts.append(f"ON {on}")
        if rule.deleted is not None:
            deleted = " AND ".join([f"change.`{rule.deleted}`", *met])
            parts.append(f"WHEN MATCHED AND {deleted} THEN DELETE")
        to_set = [f"`{name}`" for name in rule.set] if rule.set else names
        values = ", ".join(f"{name} = change.{name}" for name in to_set)
        parts.append(f"WHEN MATCHED{_and([*kept, *met])} THEN UPDATE SET {values}")
        if rule.inserts:
            wanted = [f"change.`{rule.insert}`"] if rule.insert else []
            parts.append(
                f"WHEN NOT MATCHED{_and([*kept, *wanted])} THEN INSERT ({', '.join(names)}) "
                f"VALUES ({', '.join(f'change.{name}' for name in names)})"
            )
        return " ".join(parts)

    def _name(self, table: str) -> str:
        """Return the table as an identifier of SQL."""
        path = table_url(self.lake, table).replace("`", "``")
        return f"delta.`{path}`"

    def _version(self, table: str) -> int:
        """Return the newest version; -1 if the table does not exist."""
        return int(self._snapshot(table).version())

    def _snapshot(self, table: str) -> Any:
        jvm = self._jvm
        log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(
            self._spark._jsparkSession, table_url(self.lake, table)
        )
        return log.update(False, jvm.scala.Option.empty(), jvm.scala.Option.empty())

    def _constraints(self, snapshot: Any) -> Constraints:
        if int(snapshot.version()) < 0:
            return Constraints()
        metadata = snapshot.metadata()
        properties = self._jvm.scala.jdk.javaapi.CollectionConverters.asJava(
            metadata.configuration()
        )
        return Constraints.of(dict(properties), json.loads(metadata.schemaString()))

    @property
    def _jvm(self) -> Any:
        jvm = self._spark._jvm
        assert jvm is not None
        return jvm

    def _staged_rows(self, commit: Commit, constraints: Constraints) -> DataFrame:
        """Return the staged rows in all columns of the table, so that the commit adds new ones.

        Columns that Delta computes are left out, unless the staged files have them.
        """
        from pyspark.sql import functions as F

        in_files = {
            name for file in commit.files for name in (*file.schema.names, *(file.partition or ()))
        }
        to_compute = constraints.computed.keys() - in_files
        wanted = _spark_schema(
            pa.schema([column for column in commit.schema if column.name not in to_compute])
        )
        parts = [self._spark.createDataFrame([], wanted)]
        folder = table_url(self.lake, commit.table)
        if commit.mode == "rewrite":
            parts.append(self._spark.read.format("delta").load(folder))
        for file in commit.files:
            frame = self._spark.read.parquet(f"{folder}/{file.path}")
            for column, value in (file.partition or {}).items():
                frame = frame.withColumn(column, F.lit(value))
            parts.append(frame)
        rows = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), parts)
        # A union drops the metadata of columns.
        return rows.select(
            *(
                F.col(f"`{field.name}`").alias(field.name, metadata=field.metadata)
                for field in wanted
            )
        )


@contextmanager
def _errors_of_delta() -> Iterator[None]:
    """Raise what delta-rs raises: the message of Java without its stack, and conflicts apart."""
    try:
        yield
    except TableError:
        raise
    except Exception as error:
        text = str(error)
        message = next((line for line in text.splitlines() if "[DELTA_" in line), text)
        kind = CommitConflict if "[DELTA_CONCURRENT_" in message else TableError
        raise kind(message.strip()) from error


def _save_mode(commit: Commit) -> str:
    keeps_rows = commit.mode == "append" and not commit.replaced_partitions
    return "append" if keeps_rows else "overwrite"


def _options(commit: Commit, keep_columns: bool) -> dict[str, str]:
    """Return the options of a write; columns with constraints are kept as they are."""
    options: dict[str, str] = {}
    if commit.mode in ("rewrite", "replace") and not keep_columns:
        return {"overwriteSchema": "true"}
    if commit.replaced_partitions:
        (column,) = commit.partition_by
        values = ", ".join(map(_literal, commit.replaced_partitions))
        options["replaceWhere"] = f"`{column}` IN ({values})"
    return {**options, "mergeSchema": "true"}


def _mark_options(marks: Sequence[Mark]) -> dict[str, str]:
    """Return the options that write a mark; Delta's public interface has them for one."""
    if len(marks) != 1:
        return {}
    return {"txnAppId": marks[0].app, "txnVersion": str(marks[0].version)}


def _and(conditions: Sequence[str]) -> str:
    return "".join(f" AND {one}" for one in conditions)


def _literal(value: str) -> str:
    """Return a string literal of Spark's SQL."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _spark_schema(schema: pa.Schema) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructField, StructType

    types = from_arrow_schema(schema)
    return StructType(
        [
            StructField(
                column.name, types[column.name].dataType, True, decoded_metadata(column.metadata)
            )
            for column in schema
        ]
    )


def _arrow_schema(spark: SparkSession, path: str, version: int) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    rows = spark.read.format("delta").option("versionAsOf", version).load(path)
    schema = to_arrow_schema(rows.schema, timezone="UTC")
    return pa.schema(
        [column.with_metadata(rows.schema[column.name].metadata or None) for column in schema]
    )


def decoded_metadata(metadata: dict[bytes, bytes] | None) -> dict[str, str]:
    """Return the metadata of a column as strings, for Spark."""
    return {key.decode(): value.decode() for key, value in (metadata or {}).items()}
