"""How a pipeline is doing: what it has landed, what is pending, and whether it runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from headgate.catalog.grants import TableGrants, plan_grants
from headgate.catalog.recorded import Recorded
from headgate.config import PipelineConfig
from headgate.config.gold import ROUTE, as_pattern, is_declared_gold
from headgate.config.grants import declared_on
from headgate.config.pipeline import FILES_TABLE
from headgate.errors import CatalogError
from headgate.inspect.ledger import PipelineLedger, open_ledger, recorded_changes
from headgate.inspect.quarantine import count_quarantined
from headgate.inspect.tables import kind_of, merge_errors, tables_behind
from headgate.lake.ledger_entries import (
    AccuracyEntry,
    BatchEntry,
    GoldEntry,
    Kind,
    LostEntry,
    PendingEntry,
    PredictionEntry,
    TrainingEntry,
)
from headgate.lake.ledger_snapshot import LedgerSnapshot
from headgate.lake.run_lock import read_holder
from headgate.lake.staged import ExpectationResult, StagedBatchNote
from headgate.notebook import ResultView
from headgate.quarantine.lander import name_of_files


@dataclass(frozen=True)
class CurrentRun:
    """The process that runs the pipeline now."""

    pid: int
    host: str


def find_current_run(pipeline: PipelineConfig, stream: str | None = None) -> CurrentRun | None:
    """Return the run of the pipeline, or of one of its streams."""
    holder = read_holder(pipeline.lake, stream or pipeline.name)
    return CurrentRun(holder.pid, holder.host) if holder and holder.is_alive else None


def batch_in_progress(
    pipeline: PipelineConfig, landed: int | None, stream: str | None = None
) -> int | None:
    """Return the version of a staged batch that is being committed, or that a run left behind."""
    staged = StagedBatchNote(pipeline.lake, stream or pipeline.name).under_way(landed)
    return staged.version if staged else None


@dataclass(frozen=True)
class ShardStatus:
    """The stream of a shard."""

    shard: str
    run: CurrentRun | None
    batches: int
    last_at: datetime | None
    """When its last batch landed."""
    open_batch: int | None
    follow_up_lag: FollowUpLag | None


def read_shards(pipeline: PipelineConfig, ledger: PipelineLedger) -> tuple[ShardStatus, ...]:
    """Return the shards of a pipeline that has several."""
    layout = ledger.stream.of(pipeline.name).layouts[-1]
    if layout.number == 0:
        return ()
    streams = layout.streams(pipeline.name)
    return tuple(
        _shard(pipeline, ledger.stream.of(stream), f"{number}/{len(streams)}")
        for number, stream in enumerate(streams, 1)
    )


def _shard(pipeline: PipelineConfig, ledger: LedgerSnapshot, shard: str) -> ShardStatus:
    batches = ledger.batches()
    return ShardStatus(
        shard,
        find_current_run(pipeline, ledger.name),
        batches.count,
        batches.at,
        batch_in_progress(pipeline, ledger.landed, ledger.name),
        follow_up_lag(ledger),
    )


@dataclass(frozen=True)
class PendingTable:
    """A table with staged files that could not be committed, and why."""

    table: str
    rows: int
    files: int
    error: str


def pending_tables(ledger: LedgerSnapshot) -> tuple[PendingTable, ...]:
    """Return the tables that are still pending after the newest batch."""
    by_table: dict[str, list[PendingEntry]] = {}
    for row in (row for stream in ledger.each for row in stream.pending()):
        by_table.setdefault(row.entry.table, []).append(row.entry)
    return tuple(
        PendingTable(table, sum(one.rows for one in files), len(files), files[-1].error)
        for table, files in by_table.items()
    )


@dataclass(frozen=True)
class LostFiles:
    """Staged files of a table that will never be committed, and why."""

    table: str
    rows: int
    files: int
    error: str


def lost_files(ledger: PipelineLedger) -> tuple[LostFiles, ...]:
    """Return the tables that have lost staged files, by name."""
    by_table: dict[str, list[LostEntry]] = {}
    for row in ledger.everything.entries(LostEntry):
        by_table.setdefault(row.entry.table, []).append(row.entry)
    return tuple(
        LostFiles(table, sum(one.rows for one in files), len(files), files[-1].error)
        for table, files in sorted(by_table.items())
    )


@dataclass(frozen=True)
class GoldTable:
    """A derived table, its last update, and the error that it has had since."""

    table: str
    """A template if all of its tables failed at once."""
    rows_last: int | None = None
    """Groups or rows computed by the last update; None if there was none."""
    table_version: int | None = None
    at: datetime | None = None
    error: str | None = None


def read_gold(pipeline: PipelineConfig, ledger: PipelineLedger) -> tuple[GoldTable, ...]:
    """Return the derived tables that the pipeline still declares, by name."""
    rows = [
        row
        for row in ledger.everything.last_outcomes(GoldEntry)
        if is_declared_gold(pipeline.gold, row.entry.table)
    ]
    found: dict[str, GoldTable] = {}
    for row in rows:
        table, entry = row.entry.table, row.entry
        if entry.error is None:
            found[table] = GoldTable(table, entry.rows, entry.table_version, row.at)
        else:
            found[table] = replace(found.get(table, GoldTable(table)), error=entry.error)
    for row in rows:
        template = row.entry.table
        if ROUTE in template:
            matches = re.compile(as_pattern(template)).fullmatch
            # A later update of any of its tables shows that the declaration works again.
            if any(one.at and one.at > row.at and matches(one.table) for one in found.values()):
                del found[template]
    return tuple(found.values())


@dataclass(frozen=True)
class PredictionStatus:
    """A prediction: what it was made by last, and how good it has been."""

    name: str
    table: str
    rows: int = 0
    """Predictions written so far."""
    rows_last: int = 0
    """Those of the last time."""
    fallback_last: int = 0
    """Those of the last time that have the value of the fallback."""
    model: str | None = None
    """The version that predicted last; None if the fallback did."""
    at: datetime | None = None
    error: str | None = None
    """Why the promoted model, or a query, cannot be used."""
    truths: int = 0
    """Recent predictions whose truth is known."""
    mae: float | None = None
    """Their mean absolute error."""
    trained_mae: float | None = None
    drift: float | None = None
    """How much larger the error is than in training."""
    trained_at: datetime | None = None
    """When a run has last trained the model."""
    training_error: str | None = None


def read_predictions(
    pipeline: PipelineConfig, ledger: PipelineLedger
) -> tuple[PredictionStatus, ...]:
    """Return the predictions that the pipeline declares, in its order."""
    snapshot = ledger.stream
    rows = {table: one.rows for table, one in snapshot.tables(Kind.PREDICTION).items()}
    found = {
        table: PredictionStatus(name, table, rows.get(table, 0))
        for name, table in pipeline.prediction_tables.items()
    }
    for made in sorted(snapshot.last_outcomes(PredictionEntry), key=lambda row: row.at):
        if (one := found.get(made.entry.table)) is not None:
            one = replace(one, error=made.entry.error)
            if made.entry.rows:
                last = made.entry.rows, made.entry.fallback
                one = replace(one, rows_last=last[0], fallback_last=last[1], at=made.at)
                one = replace(one, model=made.entry.model)
            found[one.table] = one
    for measured in snapshot.last_outcomes(AccuracyEntry):
        if (one := found.get(measured.entry.table)) is not None:
            mae, trained = measured.entry.mae, measured.entry.trained_mae
            one = replace(one, truths=measured.entry.truths, mae=mae, trained_mae=trained)
            found[one.table] = replace(one, drift=mae / trained if trained else None)
    for trained_by in sorted(snapshot.last_outcomes(TrainingEntry), key=lambda row: row.at):
        if (one := found.get(trained_by.entry.table)) is not None:
            error = trained_by.entry.error
            found[one.table] = replace(one, trained_at=trained_by.at, training_error=error)
    return tuple(found.values())


@dataclass(frozen=True)
class LastBatch:
    """The newest complete batch."""

    batch: int
    at: datetime
    rows: int
    tables: int


@dataclass(frozen=True)
class FollowUpLag:
    """How far merged, derived and predicted tables are behind the newest batch."""

    batches: int
    since: datetime | None
    """When the first of these batches landed."""


def follow_up_lag(ledger: LedgerSnapshot) -> FollowUpLag | None:
    """Return None if everything is up to date, or nothing follows from batches."""
    landed, followed = ledger.landed, ledger.followed
    if landed is None or followed is None or followed >= landed:
        return None
    missed = ledger.entries(BatchEntry, since=followed + 1)
    return FollowUpLag(landed - followed, missed[0].at if missed else None)


@dataclass(frozen=True)
class CatalogStatus:
    """Tables that are registered in the catalog, as the runs have recorded it."""

    catalog: str
    registered: int
    missing: tuple[str, ...] = ()
    """Tables that the next run registers."""
    errors: Mapping[str, str] = field(default_factory=dict)
    """Why tables could not be registered."""


def _recorded(pipeline: PipelineConfig) -> Recorded | None:
    return None if pipeline.catalog is None else Recorded.of(pipeline, pipeline.catalog)


def _catalog_status(pipeline: PipelineConfig, recorded: Recorded | None) -> CatalogStatus | None:
    """Return None without a catalog. The catalog itself is not asked."""
    if pipeline.catalog is None or recorded is None:
        return None
    registered = len(recorded.tables & recorded.registered)
    missing = tuple(recorded.missing)
    return CatalogStatus(pipeline.catalog.identity, registered, missing, recorded.errors)


@dataclass(frozen=True)
class GrantsStatus:
    """Grants on registered tables, as the runs and `headgate grants` have recorded them."""

    granted: int
    """Privileges that Headgate has granted."""
    missing: tuple[str, ...] = ()
    """Tables that lack declared grants; the next run grants them."""
    obsolete: tuple[str, ...] = ()
    """Tables with grants that are no longer declared; `headgate grants apply` revokes them."""
    errors: Mapping[str, str] = field(default_factory=dict)
    """Why grants on tables were refused."""
    drift: tuple[TableGrants, ...] | None = None
    """Tables whose grants in the catalog are not as declared; None if it was not asked."""
    not_compared: str | None = None
    """Why the catalog, though asked, did not list its grants."""


def read_grants(pipeline: PipelineConfig, online: bool = False) -> GrantsStatus | None:
    """Return None if nothing is or was granted. The catalog itself is asked only if `online`."""
    return _grants_status(pipeline, _recorded(pipeline), online)


def _grants_status(
    pipeline: PipelineConfig, recorded: Recorded | None, online: bool
) -> GrantsStatus | None:
    if recorded is None or not (pipeline.grants or any(recorded.grants.values())):
        return None
    status = _recorded_grants(pipeline, recorded)
    if not online:
        return status
    try:
        found = plan_grants(pipeline)
    except CatalogError as error:
        return replace(status, not_compared=error.message)
    return replace(status, drift=tuple(one for one in found.tables if not one.is_as_declared))


def _recorded_grants(pipeline: PipelineConfig, recorded: Recorded) -> GrantsStatus:
    tables = sorted(recorded.tables & recorded.registered)
    ours = {table: recorded.grants.get(table, frozenset()) for table in tables}
    declared = {table: declared_on(pipeline.grants, table) for table in tables}
    return GrantsStatus(
        sum(map(len, ours.values())),
        tuple(table for table in tables if declared[table] - ours[table]),
        tuple(table for table in tables if ours[table] - declared[table]),
        {
            table: error
            for table, error in recorded.grant_errors.items()
            if ours.get(table) != declared.get(table)
        },
    )


@dataclass(frozen=True)
class Status(ResultView):
    """A pipeline at one point in time."""

    pipeline: str
    file: str | None
    lake: str
    run: CurrentRun | None
    batches: int
    last_batch: LastBatch | None
    open_batch: int | None
    """A batch that is staged and not complete yet."""
    rows: int
    """Records in silver tables, or changes in change logs."""
    quarantined: Mapping[str, int]
    """Open records, by reason."""
    replayed: int
    """Records that were in quarantine and have landed since."""
    dropped: int
    replay_cut_short: bool
    """Whether a replay or drop was interrupted; the next one completes it."""
    tables: int
    pending: tuple[PendingTable, ...]
    schema_changes: int
    """Changes of existing tables; new tables are not counted."""
    expectations: tuple[ExpectationResult, ...] = ()
    """Totals of each expectation; those that most rows failed come first. Rows that a replay
    checked again are not counted."""
    files: int | None = None
    """Change files read; None if the source does not consist of files."""
    behind: tuple[str, ...] = ()
    """Merged and history tables that are behind their change logs."""
    merge_errors: Mapping[str, str] = field(default_factory=dict)
    """Why the last merge of a table failed; the next batch retries it."""
    lost: tuple[LostFiles, ...] = ()
    """Tables with staged files that were lost, or dropped by a user."""
    derived: tuple[GoldTable, ...] = ()
    """Tables that `gold` declares and that were derived, or failed to be."""
    follow_up_lag: FollowUpLag | None = None
    """How far tables that follow from others are behind; None if they are up to date."""
    predictions: tuple[PredictionStatus, ...] = ()
    """What `predict` declares."""
    shards: tuple[ShardStatus, ...] = ()
    """The streams of a pipeline with several shards."""
    catalog: CatalogStatus | None = None
    """What is registered; None if the pipeline has no catalog."""
    grants: GrantsStatus | None = None
    """What is granted on these tables; None if nothing is or was declared."""


def read_status(pipeline: PipelineConfig, online: bool = False) -> Status:
    """Return the status from the lake; with `online`, ask the catalog about its grants, too."""
    ledger = open_ledger(pipeline)
    own = set(pipeline.own_tables.values())
    landed = [one for one in ledger.landed.values() if one.table not in own]
    quarantined = count_quarantined(pipeline)
    batches = ledger.stream.batches()
    shards = read_shards(pipeline, ledger)
    runs = [one.run for one in shards] if shards else [find_current_run(pipeline)]
    open_batches = (
        [one.open_batch for one in shards]
        if shards
        else [batch_in_progress(pipeline, batches.version)]
    )
    lags = [follow_up_lag(one) for one in ledger.stream.each]
    recorded = _recorded(pipeline)
    return Status(
        pipeline=pipeline.name,
        file=pipeline.file,
        lake=pipeline.lake,
        run=next(filter(None, runs), None),
        batches=batches.count,
        last_batch=_last_batch(ledger, own),
        open_batch=next((one for one in open_batches if one is not None), None),
        rows=sum(one.rows for one in landed),
        quarantined=quarantined.open,
        replayed=quarantined.replayed,
        dropped=quarantined.dropped,
        replay_cut_short=_is_replay_interrupted(pipeline, ledger),
        tables=len(landed),
        pending=pending_tables(ledger.everything),
        schema_changes=sum(
            change.change != "CreateTable" and kind_of(pipeline, change.table).is_landed_in
            for change in recorded_changes(ledger)
        ),
        expectations=ledger.stream.expectations(),
        files=_files_read(ledger) if pipeline.lands_changes else None,
        behind=tables_behind(pipeline, ledger) if pipeline.lands_changes else (),
        merge_errors=merge_errors(ledger) if pipeline.lands_changes else {},
        lost=lost_files(ledger),
        derived=read_gold(pipeline, ledger) if pipeline.gold else (),
        follow_up_lag=max(filter(None, lags), key=lambda lag: lag.batches, default=None),
        predictions=read_predictions(pipeline, ledger) if pipeline.predict else (),
        shards=shards,
        catalog=_catalog_status(pipeline, recorded),
        grants=_grants_status(pipeline, recorded, online),
    )


def _files_read(ledger: PipelineLedger) -> int:
    found = ledger.stream.tables(Kind.TABLE, table=FILES_TABLE)
    return sum(one.rows for one in found.values())


def _last_batch(ledger: PipelineLedger, own: set[str]) -> LastBatch | None:
    found = ((one, one.batches()) for one in ledger.stream.each)
    known = [
        (totals.at, totals.version, stream)
        for stream, totals in found
        if totals.version is not None and totals.at is not None
    ]
    if not known:
        return None
    at, version, stream = max(known, key=lambda one: one[0])
    tables = stream.tables(Kind.TABLE, since=version).values()
    landed = [one for one in tables if one.table not in own]
    return LastBatch(version, at, sum(one.rows for one in landed), len(landed))


def _is_replay_interrupted(pipeline: PipelineConfig, ledger: PipelineLedger) -> bool:
    note = StagedBatchNote(pipeline.lake, name_of_files(pipeline.name))
    return note.under_way(ledger.replays.batches().version) is not None
