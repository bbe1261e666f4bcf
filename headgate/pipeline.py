"""A pipeline in Python: declared with the same words as a file, and everything it can do."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, overload

from headgate import config
from headgate.errors import Finding, LandingError, UsageError, did_you_mean, shown
from headgate.notebook import Rows
from headgate.run_result import RunResult, RunTally

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from headgate.catalog.grants import GrantsChanged, GrantsPlan
    from headgate.cdc.rewind import Rewound
    from headgate.engine.events import Event, Listener
    from headgate.engine.pending import PendingFile
    from headgate.gold.follow import Refreshed
    from headgate.inspect.graph import Graph
    from headgate.inspect.plan import PipelinePlan
    from headgate.inspect.quarantine import QuarantinedRecord
    from headgate.inspect.schema import TableSchema
    from headgate.inspect.status import Status
    from headgate.inspect.tables import TableSummary
    from headgate.inspect.verify import Verified
    from headgate.lake.maintain import MaintenanceResult
    from headgate.lake.snapshot import Snapshot
    from headgate.quarantine.filter import OffsetRange, QuarantineFilter
    from headgate.quarantine.replay import Replayed
    from headgate.serve.query import Query
    from headgate.sources.stop_signal import StopSignal
    from headgate.workflow.target import Target


def load(path: str | os.PathLike[str]) -> Pipeline:
    """Load the pipeline that a file declares.

    Raises `InvalidPipeline` with everything that is wrong as its `findings`.
    """
    return config.load_pipeline(path, Pipeline)


class Pipeline(config.PipelineConfig):
    """A declared pipeline that can be run and inspected.

        pipeline = headgate.load("games.yaml")
        print(pipeline.run())
        pipeline.status()

    Nothing is read or started before a method is called; only `run`, `refresh`, grants, and tables
    that are too large for one process start Spark.
    """

    def run(
        self,
        once: bool = True,
        from_ledger: bool = False,
        on_event: Listener | None = None,
        stop: StopSignal | None = None,
        shard: str | None = None,
        follow_only: bool = False,
    ) -> RunResult:
        """Land what the source has now; with `once=False`, continue until a stop.

        Ctrl-C, SIGTERM and `stop.request()` finish the batch first. `from_ledger` starts a new
        checkpoint and continues where the ledger ends. Of a pipeline with several shards, each
        run lands one, such as `2/4`. `follow_only` reads nothing new, and only brings merged and
        derived tables up to date.
        """
        from headgate.config.shards import Shard
        from headgate.engine.runner import RunOptions
        from headgate.run import run_pipeline

        tally = RunTally(self, on_event)
        one_of = None if shard is None else Shard.parse(shard)
        options = RunOptions(
            once=once, from_ledger=from_ledger, shard=one_of, follow_only=follow_only
        )
        ended = run_pipeline(self, options, tally.take, stop)
        return tally.result(ended)

    def check(self) -> list[Finding]:
        """Return the mistakes that can be found without running; empty if there are none.

        A `Pipeline` is valid by itself: what remains is what it refers to, such as the .proto file
        of its envelope.
        """
        from headgate.inspect.check import find_mistakes_beyond_the_file

        return find_mistakes_beyond_the_file(self)

    def plan(self, online: bool = False) -> PipelinePlan:
        """Return what the newest registered schemas would do to the tables.

        With `online`, the catalog is asked whether grants are as declared.
        """
        from headgate.inspect.plan import read_plan

        return read_plan(self, online)

    def status(self, online: bool = False) -> Status:
        """Return what has landed, what is pending, and whether the pipeline runs.

        With `online`, the catalog is asked whether grants are as declared.
        """
        from headgate.inspect.status import read_status

        return read_status(self, online)

    def pending(self) -> Rows[PendingFile]:
        """Return the staged files whose tables could not be committed."""
        from headgate.engine.pending import list_pending

        return Rows.of(list_pending(self))

    def drop_pending(self, table: str, file: str | None = None) -> Rows[PendingFile]:
        """Drop pending files of a table, or one of them; their records are lost."""
        from headgate.engine.pending import drop_pending

        return Rows.of(drop_pending(self, table, file))

    def tables(self) -> Rows[TableSummary]:
        """Return all tables with their rows, sizes and last change."""
        from headgate.inspect.tables import read_tables

        return Rows.of(read_tables(self))

    def schema(self, table: str) -> TableSchema:  # type: ignore[override]
        """Return the columns of a table and how they came to be.

        `table` is its name, its route, or the name of its source table.
        """
        from headgate.inspect.schema import read_table_schema

        return read_table_schema(self, table)

    def graph(self) -> Graph:
        """Return the source and the tables, and which are made from which."""
        from headgate.inspect.graph import read_graph

        return read_graph(self)

    def refresh(self, *patterns: str) -> Rows[Refreshed]:
        """Rebuild derived tables by name or pattern; all if none is given."""
        from headgate.gold.follow import refresh

        return Rows.of(refresh(self, patterns or ("*",)))

    def rewind(self, table: str, *, to: str | datetime, into: str | None = None) -> Rewound:
        """Create a table with a source table's rows as of a time, or a position in its log."""
        self._require_changes("rewind")
        from headgate.cdc.rewind import rewind

        return rewind(self, table, to.isoformat() if isinstance(to, datetime) else to, into)

    def verify(self, *tables: str) -> Verified:
        """Compare landed tables with the ledger, merged and history tables with their change logs.

        All are compared if no table is named. Iterate over the result, or ask whether it `is_ok`.
        """
        from headgate.inspect.verify import read_verified

        return read_verified(self, tables)

    def run_maintenance(
        self, *tables: str, dry_run: bool = False, at_most: timedelta | str | None = None
    ) -> Rows[MaintenanceResult]:
        """Combine small files and delete what no version needs, in tables by name or pattern.

        With `dry_run`, return what that would do. The pipeline may be running.
        """
        from headgate.maintain import maintain

        limit = config.Duration.parse(at_most) if isinstance(at_most, str) else at_most
        return Rows.of(maintain(self, tables or ("*",), dry_run=dry_run, at_most=limit))

    def plan_grants(self) -> GrantsPlan:
        """Return how the grants in the catalog differ from what is declared.

        Starts Spark, except for Unity Catalog from outside of Databricks.
        """
        from headgate.catalog.grants import plan_grants

        return plan_grants(self)

    def apply_grants(self, *, exact: bool = False) -> Rows[GrantsChanged]:
        """Grant what is declared, and revoke what Headgate has granted and no longer is.

        With `exact`, also revoke what others have granted. The pipeline may be running.
        """
        from headgate.catalog.grants import apply_grants

        return Rows.of(apply_grants(self, exact))

    def revoke_grants(self, principal: str | None = None) -> Rows[GrantsChanged]:
        """Revoke what Headgate has granted: all, or that of one principal."""
        from headgate.catalog.grants import revoke_grants

        return Rows.of(revoke_grants(self, principal))

    def open_workflow(self, target: str = "local") -> Target:
        """Return the pipeline's workflow in a scheduler, or on this machine, to run or install it.

        Targets are `local`, `airflow`, `databricks`, `systemd` and `cron`.
        """
        from headgate.workflow.open import open_target
        from headgate.workflow.plan import WorkflowPlan

        return open_target(target, WorkflowPlan.of(self))

    def query(
        self,
        sql: str,
        *,
        token: str | None = None,
        from_version: int | None = None,
        since: timedelta | str | None = None,
        only_new: bool = False,
    ) -> Query:
        """Return the changes of a query that ends in `EMIT CHANGES`; else its rows.

        First come the rows so far. The changes begin after a version or a time, with new ones
        only, or after the change that has the `token`.
        """
        from headgate.serve.catalog import Catalog
        from headgate.serve.push import Start
        from headgate.serve.query import Query

        if isinstance(since, str):
            since = config.Duration.parse(since)
        return Query(Catalog(self), sql, Start(token, from_version, since, only_new))

    @property
    def quarantine(self) -> Quarantine:
        """Records that could not land."""
        return Quarantine(self)

    @overload
    def read(
        self, table: str, version: int | None = None, columns: Sequence[str] | None = None
    ) -> pa.Table: ...
    @overload
    def read(
        self,
        table: str,
        version: int | None = None,
        columns: Sequence[str] | None = None,
        *,
        spark: SparkSession,
    ) -> DataFrame: ...
    def read(
        self,
        table: str,
        version: int | None = None,
        columns: Sequence[str] | None = None,
        *,
        spark: SparkSession | None = None,
    ) -> pa.Table | DataFrame:
        """Read a table of the lake: the newest version, or an older one.

        Returns an Arrow table; with a Spark session, a DataFrame that reads when it is used.
        """
        snapshot = self._snapshot(table, version)
        _require_columns(snapshot, columns)
        if spark is not None:
            reader = spark.read.format("delta").option("versionAsOf", snapshot.version)
            rows = reader.load(snapshot.url)
            names = None if columns is None else [name.replace("`", "``") for name in columns]
            return rows if names is None else rows.select(*(f"`{name}`" for name in names))
        from headgate.lake.tables import TableError

        try:
            return snapshot.read(columns)
        except TableError as error:
            hint = f"Spark may be able to: read({table!r}, spark=session)"
            raise _unreadable(snapshot.url, table, error, hint) from error

    def _snapshot(self, table: str, version: int | None) -> Snapshot:
        from headgate.lake.snapshot import Snapshot
        from headgate.lake.tables import TableError, table_url

        # A name is one folder of the lake, never a path that leads out of it.
        if Path(table).name != table:
            self._refuse_unknown(table)
        try:
            newest = Snapshot.open(self.lake, table) or self._refuse_unknown(table)
            if version is None or version == newest.version:
                return newest
            if not 0 <= version < newest.version:
                message = f"table {shown(table)} has no version {version}"
                raise UsageError("bad-argument", message, f"the newest is {newest.version}")
            return Snapshot.open(self.lake, table, version) or self._refuse_unknown(table)
        except TableError as error:
            raise _unreadable(table_url(self.lake, table), table, error) from error

    def _refuse_unknown(self, table: str) -> NoReturn:
        from headgate.inspect.ledger import open_ledger

        known = [*open_ledger(self).everything.tables(), *self.own_tables.values()]
        hint = did_you_mean(table, known) or "`.tables()` lists all tables"
        raise LandingError(
            "table-unknown", f"the lake has no table {shown(table)}", hint, where=self.lake
        )

    def _require_changes(self, method: str) -> None:
        if not self.lands_changes:
            raise UsageError(
                "bad-argument",
                f"`{method}` is for change files, and {self.name} lands a stream of records",
                hint="only pipelines with `source=Files(…)` have change logs",
            )


@dataclass(frozen=True)
class Quarantine:
    """The records of one pipeline that could not land.

    Filters are those of `headgate quarantine`, and all must hold. `route` is a route or a table;
    `since` and `until` are in UTC unless they have a zone; `offset` is `topic:partition:offset`
    or `topic:partition:from-to`; `file` is the path of a change file, or the end of it.
    """

    pipeline: Pipeline

    def list(
        self,
        *,
        reason: str | None = None,
        route: str | None = None,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        offset: str | OffsetRange | None = None,
        file: str | None = None,
        state: str = "open",
        limit: int = 20,
    ) -> Rows[QuarantinedRecord]:
        """Return records, the newest batch first; `total` counts those beyond the limit too.

        `state` is `open`, `replayed`, `dropped` or `all`.
        """
        from headgate.inspect.quarantine import read_quarantined

        wanted = _filter(reason, route, since, until, offset, file, state)
        records, total = read_quarantined(self.pipeline, wanted, limit)
        return Rows.of(records, total)

    def replay(
        self,
        *,
        reason: str | None = None,
        route: str | None = None,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        offset: str | OffsetRange | None = None,
        file: str | None = None,
        limit: int | None = None,
        on_event: Listener | None = None,
    ) -> Replayed:
        """Land open records, each exactly once; the pipeline may be running."""
        from headgate.quarantine.operations import replay_quarantine

        wanted = _filter(reason, route, since, until, offset, file)
        return replay_quarantine(self.pipeline, wanted, on_event or _ignore, limit)

    def drop(
        self,
        *,
        reason: str | None = None,
        route: str | None = None,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        offset: str | OffsetRange | None = None,
        file: str | None = None,
        all_open: bool = False,
    ) -> Mapping[str, int]:
        """Delete the bytes of open records for good; return the number of records by reason.

        Needs a filter, or `all_open=True`.
        """
        from headgate.quarantine.operations import drop_quarantine

        wanted = _filter(reason, route, since, until, offset, file)
        if wanted.is_narrow == all_open:
            raise UsageError(
                "bad-argument",
                "`all_open` cannot be combined with filters" if all_open else "no records selected",
                hint="use `reason`, `route`, `since`, `until`, `offset` or `file`; "
                "or only `all_open=True`",
            )
        return drop_quarantine(self.pipeline, wanted)


def _ignore(_: Event) -> None:
    pass


def _filter(
    reason: str | None,
    route: str | None,
    since: str | datetime | None,
    until: str | datetime | None,
    offset: str | OffsetRange | None,
    file: str | None,
    state: str | None = None,
) -> QuarantineFilter:
    from headgate.quarantine.filter import (
        OffsetRange,
        QuarantineFilter,
        parse_reason,
        parse_state,
        parse_time,
    )

    return QuarantineFilter(
        reason=parse_reason(reason),
        route=route,
        since=parse_time("since", since),
        until=parse_time("until", until),
        offsets=OffsetRange.parse(offset) if isinstance(offset, str) else offset,
        file=file,
        state=parse_state(state),
    )


def _require_columns(snapshot: Snapshot, columns: Sequence[str] | None) -> None:
    known = snapshot.schema.names
    for name in columns or ():
        if name not in known:
            hint = did_you_mean(name, known) or f"`.schema({snapshot.table!r})` lists its columns"
            message = f"table {shown(snapshot.table)} has no column {shown(name)}"
            raise UsageError("bad-argument", message, hint)


def _unreadable(url: str, table: str, error: Exception, hint: str | None = None) -> LandingError:
    message = f"{table} cannot be read: {str(error).splitlines()[0]}"
    return LandingError("lake-unreadable", message, hint, where=url)
