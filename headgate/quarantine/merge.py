"""Brings merged and history tables up to the change logs that replays landed in, without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter

from headgate.cdc.merge import Told, entry_of, merge_plan, merge_summary, merge_tables
from headgate.cdc.merge_plan import ForSpark, MergePlan, TableMerged
from headgate.cdc.plan import ChangePlan
from headgate.config import Pipeline
from headgate.engine.events import Listener, MergeFailed, WithoutKey
from headgate.lake.ledger import Kind, Ledger
from headgate.lake.parquet import delete_file
from headgate.quarantine.ledger import SettlingLedger

_MOST_TRIES = 3
"""A run may merge the same tables at the same moment; who comes second tries again."""


@dataclass(frozen=True)
class Followed:
    """The tables that have what their logs have, and those that wait for the next run."""

    merged: tuple[str, ...]
    behind: tuple[str, ...]


def merge_replayed(
    pipeline: Pipeline, plan: ChangePlan, ledger: SettlingLedger, listener: Listener
) -> Followed:
    """All logs that any replay landed in: one that was cut short may not have merged its own."""
    app = f"{Ledger(pipeline.lake, pipeline.ledger, pipeline.name).app}:merge"
    logs = sorted({row["table"] for row in ledger.rows([Kind.TABLE])} & set(plan.known))
    plans = [merge_plan(plan, pipeline.merge, app, log, plan.known[log]) for log in logs]
    began = perf_counter()
    told = _merged([one for one in plans if one is not None])
    merged = [one for one in told if isinstance(one, TableMerged)]
    if merged:
        landed = ledger.landed()
        assert landed is not None
        ledger.add(landed, [entry_of(one) for one in merged])
        listener(merge_summary(merged, perf_counter() - began))
    for one in told:
        if isinstance(one, TableMerged) and one.made and one.append_only:
            listener(WithoutKey(one.table))
        elif isinstance(one, MergeFailed):
            listener(one)
    behind = [one.table for one in told if not isinstance(one, TableMerged)]
    return Followed(tuple(one.table for one in merged), tuple(behind))


def _merged(plans: Sequence[MergePlan]) -> list[Told]:
    done: dict[str, Told] = {}
    for _ in range(_MOST_TRIES):
        done |= {one.table: one for one in merge_tables(plans)}
        failed = {one.table for one in done.values() if isinstance(one, MergeFailed)}
        plans = [plan for plan in plans if failed & {plan.merged, plan.history}]
        if not plans:
            break
    _clear_away(done.values())
    return list(done.values())


def _clear_away(told: Iterable[Told]) -> None:
    """What is too large for this process is folded again by the run that merges it."""
    for one in told:
        if isinstance(one, ForSpark) and one.folded is not None:
            delete_file(one.folded)
