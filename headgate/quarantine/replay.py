"""Lands records of the quarantine, once what kept them there is gone."""

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

from headgate.cdc.merge import MergeResult, merge_plan, merge_summary, merge_tables
from headgate.cdc.merge_table import MergePlan, NeedsSparkMerge, TableMerged
from headgate.cdc.plan import ChangePlan
from headgate.config import Pipeline
from headgate.engine.events import Listener, MergeFailed, WithoutKey
from headgate.engine.plan import BatchPlan
from headgate.engine.quarantined import QUARANTINE, QuarantineState
from headgate.engine.stage import all_told, staged_files
from headgate.lake.ledger import app_id
from headgate.lake.ledger_entries import Kind
from headgate.lake.parquet import delete_file, delete_staged, read_staged
from headgate.lake.staged import StagedFile
from headgate.quarantine.filter import QuarantineFilter
from headgate.quarantine.lander import ReplayLander, ReplayLedger
from headgate.quarantine.outcome import OUTCOME_COLUMNS, ReplayOutcome
from headgate.quarantine.snapshot import QuarantineSnapshot
from headgate.schema.origin import SOURCE_COLUMNS, as_records


def match_records(records: pa.Table, among: pa.Table) -> list[int]:
    """Where in `among` each of the records is.

    Not every source numbers its records, so all of a record is compared. Where several are alike
    in every respect, it does not matter which is which.
    """
    places: dict[Hashable, deque[int]] = defaultdict(deque)
    for row, identity in enumerate(_identities(among)):
        places[identity].append(row)
    return [places[identity].popleft() for identity in _identities(records)]


def _identities(records: pa.Table) -> Iterator[Hashable]:
    moments = records.column("timestamp").cast(pa.int64())
    plain = [records.column(name) for name in ("topic", "partition", "offset", "key", "file")]
    columns = [column.to_pylist() for column in (*plain, moments)]
    headers = (repr(each.as_py()) for each in records.column("headers"))
    return zip(_digests(records.column("value")), headers, *columns, strict=True)


def _digests(values: pa.ChunkedArray) -> Iterator[bytes | None]:
    for value in values:
        yield blake2b(value.as_buffer(), digest_size=16).digest() if value.is_valid else None


def records_of(quarantined: pa.Table) -> pa.Table:
    """Rows of the quarantine as the records that they were."""
    names = {f"_{field.name}": field.name for field in SOURCE_COLUMNS}
    columns = [names.get(name, name) for name in quarantined.column_names]
    return as_records(quarantined.rename_columns(columns))


_REJECTION = ("reason", "detail", "route", "schema_id")


@dataclass
class Restaged:
    """The files to commit, and what changes in the quarantine once they are."""

    files: list[StagedFile] = field(default_factory=list)
    changed: list[dict[str, Any]] = field(default_factory=list)
    remaining: Counter[str] = field(default_factory=Counter)

    @property
    def rows(self) -> pa.Table:
        return pa.Table.from_pylist(self.changed, OUTCOME_COLUMNS)


def restage(plan: BatchPlan, taken: pa.Table) -> Restaged:
    """Stage rows of the quarantine as the records that they were.

    Those that still cannot land keep their rows: no file of them is committed, their rows are
    told the new reason.
    """
    staged = Restaged()
    # Where it is not known, bronze has it: rather once too seldom than twice.
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
    for file in staged_files(all_told(plan.stage(records.to_batches()))):
        if file.table == plan.quarantine:
            rejected.append(read_staged(plan.lake, file))
            delete_staged(plan.lake, file)
        elif file.table == plan.bronze and in_bronze:
            delete_staged(plan.lake, file)
        else:
            staged.files.append(file)
    left_over: dict[int, dict[str, Any]] = {}
    if rejected:
        again = pa.concat_tables(rejected)
        facts = again.select([*_REJECTION, "in_bronze"]).to_pylist()
        left_over = dict(zip(match_records(records_of(again), records), facts, strict=True))
    for row, was in enumerate(taken.select(OUTCOME_COLUMNS.names).to_pylist()):
        now = _new_state(was, left_over.get(row), in_bronze, plan.bronze is not None)
        if now["state"] == QuarantineState.OPEN:
            staged.remaining[now["reason"]] += 1
        if now != was:
            staged.changed.append(now)


def _new_state(
    was: dict[str, Any], left_over: dict[str, Any] | None, in_bronze: bool, has_bronze: bool
) -> dict[str, Any]:
    if left_over is None:
        there = True if has_bronze else was["in_bronze"]
        return {**was, "state": QuarantineState.REPLAYED.value, "in_bronze": there}
    there = was["in_bronze"] if in_bronze else left_over["in_bronze"]
    return {**was, **left_over, "in_bronze": there}


@dataclass(frozen=True)
class Replayed:
    """What a replay did."""

    taken: int
    """Records that were tried once more."""
    landed: Mapping[str, int]
    """How many went to which silver table or change log."""
    remaining: Mapping[str, int]
    """How many of them stay in quarantine, for which reason."""
    waiting: Mapping[str, int]
    """Tables that could not be written, and their records: the next replay tries again."""
    completed: bool
    """Whether an earlier one that was cut short was completed first; its records count too."""
    merged: tuple[str, ...] = ()
    """Tables that followed the change logs which got something."""
    behind: tuple[str, ...] = ()
    """Tables that did not follow: the next run does it."""


@dataclass(frozen=True)
class Portion:
    """How much is taken at a time: as much as memory should hold."""

    records: int = 50_000
    bytes: int = 128 << 20


def replay_quarantined(
    lander: ReplayLander,
    wanted: QuarantineFilter,
    limit: int | None = None,
    portion: Portion | None = None,
) -> Replayed:
    """Try again what is wanted and open now; the oldest first where there is a limit."""
    lander.plan.forget()
    wanted = replace(wanted, state=QuarantineState.OPEN)
    completed = lander.complete()
    snapshot = lander.snapshot()
    if snapshot is not None:
        for taken in _portions(_open_rows(snapshot, wanted, limit), portion or Portion()):
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
        # By their names, as a sort of whole rows would hold them all in memory.
        condition = f"""id IN (
            SELECT id FROM quarantine WHERE {condition}
            ORDER BY _at, _topic, _partition, _file, _offset LIMIT {limit}
        )"""
    names = ", ".join(QUARANTINE.names)
    for batch in snapshot.rows(f"SELECT {names} FROM quarantine WHERE {condition}"):
        yield batch.cast(QUARANTINE)


def _portions(batches: Iterator[pa.RecordBatch], portion: Portion) -> Iterator[pa.Table]:
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
"""A run may merge the same tables at the same moment; who comes second tries again."""


@dataclass(frozen=True)
class Followed:
    """The tables that have what their logs have, and those that wait for the next run."""

    merged: tuple[str, ...]
    behind: tuple[str, ...]


def merge_replayed(
    pipeline: Pipeline, plan: ChangePlan, ledger: ReplayLedger, listener: Listener
) -> Followed:
    """All logs that any replay landed in: one that was cut short may not have merged its own."""
    app = f"{app_id(pipeline.name)}:merge"
    logs = sorted(ledger.snapshot().tables(Kind.TABLE).keys() & plan.known.keys())
    plans = [merge_plan(plan, pipeline.merge, app, log, plan.known[log]) for log in logs]
    began = perf_counter()
    told = _merged([one for one in plans if one is not None])
    merged = [one for one in told if isinstance(one, TableMerged)]
    if merged:
        landed = ledger.landed()
        assert landed is not None
        ledger.add(landed, [one.entry for one in merged])
        listener(merge_summary(merged, perf_counter() - began))
    for one in told:
        if isinstance(one, TableMerged) and one.created and one.append_only:
            listener(WithoutKey(one.table))
        elif isinstance(one, MergeFailed):
            listener(one)
    behind = [one.table for one in told if not isinstance(one, TableMerged)]
    return Followed(tuple(one.table for one in merged), tuple(behind))


def _merged(plans: Sequence[MergePlan]) -> list[MergeResult]:
    done: dict[str, MergeResult] = {}
    for _ in range(_MAX_TRIES):
        done |= {one.table: one for one in merge_tables(plans)}
        failed = {one.table for one in done.values() if isinstance(one, MergeFailed)}
        plans = [plan for plan in plans if failed & {plan.merged, plan.history}]
        if not plans:
            break
    _delete_folded_files(done.values())
    return list(done.values())


def _delete_folded_files(told: Iterable[MergeResult]) -> None:
    """What is too large for this process is folded again by the run that merges it."""
    for one in told:
        if isinstance(one, NeedsSparkMerge) and one.folded is not None:
            delete_file(one.folded)
