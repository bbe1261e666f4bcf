"""Stages records of the quarantine once more, and tells which of them cannot land yet."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headgate.land.batch_plan import BatchPlan
from headgate.land.stage import all_told, staged_files
from headgate.land.staged_file import StagedFile
from headgate.quarantine.quarantine_state import QuarantineState
from headgate.replay.find_again import find_again, records_of
from headgate.replay.settlement import SETTLED

_TOLD = ("reason", "detail", "route", "schema_id")


@dataclass
class StagedAgain:
    """The files to commit, and what changes in the quarantine once they are."""

    files: list[StagedFile] = field(default_factory=list)
    changed: list[dict[str, Any]] = field(default_factory=list)
    remaining: Counter[str] = field(default_factory=Counter)

    @property
    def rows(self) -> pa.Table:
        return pa.Table.from_pylist(self.changed, SETTLED)


def stage_again(plan: BatchPlan, taken: pa.Table) -> StagedAgain:
    """Stage rows of the quarantine as the records that they were.

    Those that still cannot land keep their rows: no file of them is committed, their rows are
    told the new reason.
    """
    staged = StagedAgain()
    # Where it is not known, bronze has it: rather once too seldom than twice.
    in_bronze = taken.column("in_bronze").fill_null(True)
    for part, has_bronze in (
        (taken.filter(in_bronze), True),
        (taken.filter(pc.invert(in_bronze)), False),
    ):
        if part.num_rows:
            _stage_part(plan, part, has_bronze, staged)
    return staged


def _stage_part(plan: BatchPlan, taken: pa.Table, in_bronze: bool, staged: StagedAgain) -> None:
    records = records_of(taken)
    rejected: list[pa.Table] = []
    for file in staged_files(all_told(plan.stage(records.to_batches()))):
        path = Path(plan.lake, file.table, file.path)
        if file.table == plan.quarantine:
            rejected.append(pq.ParquetFile(path).read())
            path.unlink()
        elif file.table == plan.bronze and in_bronze:
            path.unlink()
        else:
            staged.files.append(file)
    left_over: dict[int, dict[str, Any]] = {}
    if rejected:
        again = pa.concat_tables(rejected)
        facts = again.select([*_TOLD, "in_bronze"]).to_pylist()
        left_over = dict(zip(find_again(records_of(again), records), facts, strict=True))
    for row, was in enumerate(taken.select(SETTLED.names).to_pylist()):
        now = _settled(was, left_over.get(row), in_bronze, plan.bronze is not None)
        if now["state"] == QuarantineState.OPEN:
            staged.remaining[now["reason"]] += 1
        if now != was:
            staged.changed.append(now)


def _settled(
    was: dict[str, Any], left_over: dict[str, Any] | None, in_bronze: bool, has_bronze: bool
) -> dict[str, Any]:
    if left_over is None:
        there = True if has_bronze else was["in_bronze"]
        return {**was, "state": QuarantineState.REPLAYED.value, "in_bronze": there}
    there = was["in_bronze"] if in_bronze else left_over["in_bronze"]
    return {**was, **left_over, "in_bronze": there}
