"""Replay records of the quarantine: stage them again, land those that are accepted now."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import blake2b
from time import perf_counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headgate.cdc.merge import (
    MergeResult,
    emit_merge,
    merge_plan,
    merge_summary,
    merge_tables,
    recorded_merges,
)
from headgate.cdc.merge_table import NeedsSparkMerge, TableMerged
from headgate.cdc.plan import ChangePlan
from headgate.cdc.unmerged import MergePlan
from headgate.config import PipelineConfig
from headgate.engine.events import Listener, MergeFailed
from headgate.engine.plan import BatchPlan
from headgate.engine.quarantine_table import QUARANTINE, QuarantineState
from headgate.engine.task_results import decode_results, task_results
from headgate.lake.commit import Committer
from headgate.lake.ledger_entries import Kind
from headgate.lake.staged import StagedFile
from headgate.lake.staged_files import delete_staged, read_staged
from headgate.lake.storage import delete_file
from headgate.lake.streams import app_id
from headgate.quarantine.filter import QuarantineFilter
from headgate.quarantine.lander import ReplayLander, ReplayLedger
from headgate.quarantine.outcome import OUTCOME_COLUMNS, ReplayOutcome
from headgate.quarantine.snapshot import QuarantineSnapshot
from headgate.schema.origin import SOURCE_COLUMNS, as_records


def match_records(records: pa.Table, among: pa.Table) -> list[int]:
    """Return the row in `among` of each of the records.

    Not every source numbers its records, so whole records are compared. Identical records are
    interchangeable.
    """
    rows: dict[Hashable, deque[int]] = defaultdict(deque)
    for row, identity in enumerate(_identities(among)):
        rows[identity].append(row)
    return [rows[identity].popleft() for identity in _identities(records)]


def _identities(records: pa.Table) -> Iterator[Hashable]:
    timestamps = records.column("timestamp").cast(pa.int64())
    plain = [records.column(name) for name in ("topic", "partition", "offset", "key", "file")]
    columns = [column.to_pylist() for column in (*plain, timestamps)]
    headers = (repr(value.as_py()) for value in records.column("headers"))
    return zip(_digests(records.column("value")), headers, *columns, strict=True)


def _digests(values: pa.ChunkedArray) -> Iterator[bytes | None]:
    for value in values:
        yield blake2b(value.as_buffer(), digest_size=16).digest() if value.is_valid else None


def records_of(quarantined: pa.Table) -> pa.Table:
    """Convert rows of the quarantine back to source records."""
    names = {f"_{field.name}": field.name for field in SOURCE_COLUMNS}
    columns = [names.get(name, name) for name in quarantined.column_names]
    return as_records(quarantined.rename_columns(columns))


_REJECTION = ("reason", "detail", "route", "schema_id")


@dataclass
class Restaged:
    """The files to commit, and the rows of the quarantine that change once they are committed."""

    files: list[StagedFile] = field(default_factory=list)
    changed: list[dict[str, Any]] = field(default_factory=list)
    remaining: Counter[str] = field(default_factory=Counter)

    @property
    def rows(self) -> pa.Table:
        return pa.Table.from_pylist(self.changed, OUTCOME_COLUMNS)


def restage(plan: BatchPlan, taken: pa.Table) -> Restaged:
    """Stage rows of the quarantine again as source records.

    Records that are rejected again keep their rows, with the new reason.
    """
    staged = Restaged()
    # If unknown, assume that bronze has the record, to avoid a duplicate.
    in_bronze = taken.column("in_bronze").fill_null(True)
    for part, has_bronze in (
        (taken.filter(in_bronze), True),
        (taken.filter(pc.invert(in_bronze)), False),
    ):
        if part.num_rows:
            _stage_part(plan, part, has_bronze, staged)
    return staged


def _stage_part(plan: BatchPlan, taken: pa.Table, in_bronze: bool, staged: Restaged) -> None:
    records = records_of(taken)
    rejected: list[pa.Table] = []
    for file in decode_results(task_results(plan.stage(records.to_batches()))):
        if file.table == plan.quarantine:
            rejected.append(read_staged(plan.lake, file))
            delete_staged(plan.lake, file)
        elif file.table == plan.bronze and in_bronze:
            delete_staged(plan.lake, file)
        else:
            staged.files.append(file)
    rejections: dict[int, dict[str, Any]] = {}
    if rejected:
        rows = pa.concat_tables(rejected)
        facts = rows.select([*_REJECTION, "in_bronze"]).to_pylist()
        rejections = dict(zip(match_records(records_of(rows), records), facts, strict=True))
    for row, old in enumerate(taken.select(OUTCOME_COLUMNS.names).to_pylist()):
        new = _new_state(old, rejections.get(row), in_bronze, plan.bronze is not None)
        if new["state"] == QuarantineState.OPEN:
            staged.remaining[new["reason"]] += 1
        if new != old:
            staged.changed.append(new)


def _new_state(
    old: dict[str, Any], rejection: dict[str, Any] | None, in_bronze: bool, has_bronze: bool
) -> dict[str, Any]:
    if rejection is None:
        now_in_bronze = True if has_bronze else old["in_bronze"]
        return {**old, "state": QuarantineState.REPLAYED.value, "in_bronze": now_in_bronze}
    now_in_bronze = old["in_bronze"] if in_bronze else rejection["in_bronze"]
    return {**old, **rejection, "in_bronze": now_in_bronze}


@dataclass(frozen=True)
class Replayed:
    """Result of a replay."""

    taken: int
    """Number of records that were tried."""
    landed: Mapping[str, int]
    """Number of rows that landed, by silver table or change log."""
    remaining: Mapping[str, int]
    """Number of records that stay in quarantine, by reason."""
    waiting: Mapping[str, int]
    """Number of rows by table that could not be written; the next replay tries again."""
    completed: bool
    """Whether an interrupted replay was completed first; its records are included."""
    merged: tuple[str, ...] = ()
    """Merged and history tables that were brought up to date."""
    behind: tuple[str, ...] = ()
    """Tables that the next run has to merge."""


@dataclass(frozen=True)
class PortionLimit:
    """Most records and bytes to hold in memory at a time."""

    records: int = 50_000
    bytes: int = 128 << 20


def replay_quarantined(
    lander: ReplayLander,
    wanted: QuarantineFilter,
    limit: int | None = None,
    portion: PortionLimit | None = None,
) -> Replayed:
    """Replay the matching records that are open now; with a limit, the oldest."""
    lander.plan.forget()
    wanted = replace(wanted, state=QuarantineState.OPEN)
    completed = lander.complete()
    snapshot = lander.snapshot()
    if snapshot is not None:
        for taken in _portions(_open_rows(snapshot, wanted, limit), portion or PortionLimit()):
            _land(lander, wanted, snapshot, taken)
    return Replayed(
        lander.taken,
        dict(lander.landed.most_common()),
        dict(lander.remaining.most_common()),
        dict(lander.waiting.most_common()),
        completed,
    )


def _land(
    lander: ReplayLander,
    wanted: QuarantineFilter,
    snapshot: QuarantineSnapshot,
    taken: pa.Table,
) -> None:
    def stage(plan: BatchPlan) -> tuple[list[StagedFile], ReplayOutcome]:
        staged = restage(plan, taken)
        outcome = ReplayOutcome(
            plan.version,
            QuarantineState.REPLAYED,
            datetime.now(UTC),
            taken.num_rows,
            dict(staged.remaining),
            wanted.as_record(),
            staged.rows,
        )
        return staged.files, outcome

    lander.land(wanted, snapshot, stage)


def _open_rows(
    snapshot: QuarantineSnapshot, wanted: QuarantineFilter, limit: int | None
) -> Iterator[pa.RecordBatch]:
    condition = snapshot.condition(wanted)
    if limit is not None:
        # Sort IDs only: sorting whole rows would hold them all in memory.
        condition = f"""id IN (
            SELECT id FROM stored WHERE {condition}
            ORDER BY _at, _topic, _partition, _file, _offset LIMIT {limit}
        )"""
    names = ", ".join(QUARANTINE.names)
    for batch in snapshot.rows(f"SELECT {names} FROM stored WHERE {condition}"):
        yield batch.cast(QUARANTINE)


def _portions(batches: Iterator[pa.RecordBatch], portion: PortionLimit) -> Iterator[pa.Table]:
    gathered: list[pa.RecordBatch] = []
    count = size = 0
    for batch in batches:
        for start in range(0, batch.num_rows, portion.records):
            part = batch.slice(start, portion.records)
            if gathered and (
                count + part.num_rows > portion.records or size + part.nbytes > portion.bytes
            ):
                yield pa.Table.from_batches(gathered)
                gathered, count, size = [], 0, 0
            gathered.append(part)
            count += part.num_rows
            size += part.nbytes
    if gathered:
        yield pa.Table.from_batches(gathered)


_MAX_TRIES = 3
"""Retries, because a run may merge the same tables at the same time."""


@dataclass(frozen=True)
class MergedTables:
    """The tables that are up to date, and those that the next run has to merge."""

    merged: tuple[str, ...]
    behind: tuple[str, ...]


def merge_replayed(
    pipeline: PipelineConfig,
    plan: ChangePlan,
    committer: Committer,
    ledger: ReplayLedger,
    listener: Listener,
) -> MergedTables:
    """Merge all logs that any replay landed in; an interrupted one may not have merged its own.

    Tables that need Spark are left to the next run.
    """
    app = f"{app_id(pipeline.name)}:merge"
    logs = sorted(ledger.snapshot().tables(Kind.TABLE).keys() & plan.known.keys())
    recorded = recorded_merges(pipeline)
    plans = [merge_plan(plan, pipeline.merge, app, log, plan.known[log], recorded) for log in logs]
    began = perf_counter()
    results = _merge([plan for plan in plans if plan is not None], committer)
    # The ledger may lack merges of an earlier replay that was killed.
    results = [
        result
        for result in results
        if not (isinstance(result, TableMerged) and result.is_recorded(recorded))
    ]
    merged = [result for result in results if isinstance(result, TableMerged)]
    if merged:
        landed = ledger.landed()
        assert landed is not None
        ledger.add(landed, [result.entry for result in merged])
        listener(merge_summary(merged, perf_counter() - began))
    for result in results:
        if isinstance(result, TableMerged):
            emit_merge(result, listener)
        elif isinstance(result, MergeFailed):
            listener(result)
    behind = [result.table for result in results if not isinstance(result, TableMerged)]
    return MergedTables(tuple(result.table for result in merged), tuple(behind))


def _merge(plans: Sequence[MergePlan], committer: Committer) -> list[MergeResult]:
    results: dict[str, MergeResult] = {}
    for _ in range(_MAX_TRIES):
        for result in merge_tables(plans, committer):
            if not (isinstance(result, TableMerged) and result.was_up_to_date):
                results[result.table] = result
            else:
                results.setdefault(result.table, result)
        failed = {result.table for result in results.values() if isinstance(result, MergeFailed)}
        plans = [plan for plan in plans if failed & {plan.merged, plan.history}]
        if not plans:
            break
    _delete_folded_files(results.values())
    return list(results.values())


def _delete_folded_files(results: Iterable[MergeResult]) -> None:
    """Delete the folded changes of large tables: the run that merges them folds again."""
    for result in results:
        if isinstance(result, NeedsSparkMerge) and result.folded is not None:
            delete_file(result.folded)
