"""A plan says of every kind of change what lake then does, under every contract."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Literal

import pytest

from headgate.config import Contract, Mode
from headgate.inspect.plan import PipelinePlan, read_plan
from headgate.lake.ledger_entries import SchemaEntry
from headgate.schema.changes import Outcome, SameColumns
from headgate.testing.lake import stage_in_process
from tests.engine.games import GamesLake, extent, records, wrapped
from tests.evolution.cases import Case, cases
from tests.rounds import some

CASES = [case for case in cases() if case.before is not None]
_TOLD_ONLY_WHERE_RECORDS_LAND = Outcome.APPLIED

Which = Literal["old", "new"]
Payloads = dict[Which, list[bytes]]


@pytest.fixture(scope="module")
def payloads() -> Payloads:
    ages: tuple[Which, Which] = ("old", "new")
    return {which: [case.payload(which) for case in CASES] for which in ages}


@pytest.mark.parametrize("mode", some(Mode, Mode.EVOLVE, Mode.FREEZE), ids=str)
def test_plan_foretells_what_the_ledger_tells(
    mode: Mode, tmp_path: Path, payloads: Payloads
) -> None:
    contract = Contract(columns=mode, types=mode)
    lake = GamesLake(tmp_path, max_tables=1000, contract=contract)
    old = _registered(lake, "old", payloads)
    run = lake.start()
    run.land(extent(0), stage_in_process(records(old)))
    new = _registered(lake, "new", payloads)
    plan = read_plan(lake.pipeline)
    run.land(extent(1), stage_in_process(records(new, len(old))))
    told = _told(lake, batch=1)
    quarantined = {row["route"] for row in lake.rows("quarantine")}
    for case in CASES:
        planned = _planned(plan, case)
        if case.route in quarantined:
            planned = {one for one in planned if one[1] is not _TOLD_ONLY_WHERE_RECORDS_LAND}
        assert planned == told[f"silver_{case.route}"], case.change
    assert _without_changes(read_plan(lake.pipeline), mode)


def _without_changes(plan: PipelinePlan, mode: Mode) -> bool:
    """Once records have come, there is nothing new; what is withheld is withheld as before."""
    assert bool(plan.summary.as_before) == (mode is not Mode.EVOLVE)
    return not any(table.changes for table in plan.tables)


def _planned(plan: PipelinePlan, case: Case) -> set[tuple[str, Outcome]]:
    (table,) = [one for one in plan.tables if one.table == f"silver_{case.route}"]
    return {(one.change.kind, one.change.outcome) for one in table.changes}


def _told(lake: GamesLake, batch: int) -> dict[str, set[tuple[str, Outcome]]]:
    told: dict[str, set[tuple[str, Outcome]]] = defaultdict(set)
    for row in lake.ledger.snapshot().entries(SchemaEntry, since=batch):
        entry = row.entry
        if entry.change != SameColumns.__name__:
            told[entry.table].add((entry.change, Outcome(entry.outcome)))
    return told


def _registered(lake: GamesLake, which: Which, payloads: Payloads) -> list[bytes]:
    """A record of every case, its schema made known."""
    made = []
    for case, payload in zip(CASES, payloads[which], strict=True):
        text = case.before if which == "old" else case.after
        assert text is not None
        schema_id = lake.registry.register(case.route, text)
        made.append(wrapped(case.route, schema_id, payload))
    return made
