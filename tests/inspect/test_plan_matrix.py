"""A plan says of every kind of change what landing then does, under every contract."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Literal

import pytest

from headgate.config import Contract, Delta, Mode, Pipeline, Wrapper
from headgate.inspect.plan import PipelinePlan, read_plan
from headgate.lake.ledger_entries import SchemaEntry
from headgate.schema.changes import Outcome, SameColumns
from tests.engine import in_process
from tests.engine.in_process import ENVELOPE, extent, records, staged_by
from tests.evolution.cases import Case, cases

CASES = [case for case in cases() if case.before is not None]
_TOLD_ONLY_WHERE_RECORDS_LAND = Outcome.APPLIED

Which = Literal["old", "new"]
Payloads = dict[Which, list[bytes]]


@pytest.fixture(scope="module")
def payloads() -> Payloads:
    ages: tuple[Which, Which] = ("old", "new")
    return {which: [case.payload(which) for case in CASES] for which in ages}


@pytest.mark.parametrize("mode", Mode, ids=str)
def test_plan_foretells_what_the_ledger_tells(
    mode: Mode, tmp_path: Path, payloads: Payloads
) -> None:
    contract = Contract(columns=mode, types=mode)
    landing = in_process.Pipeline(tmp_path, max_tables=1000, contract=contract)
    old = _registered(landing, "old", payloads)
    run = landing.run()
    run.land(extent(0), staged_by(records(old)))
    new = _registered(landing, "new", payloads)
    plan = read_plan(_declared(landing))
    run.land(extent(1), staged_by(records(new, len(old))))
    told = _told(landing, batch=1)
    quarantined = {row["route"] for row in landing.rows("quarantine")}
    for case in CASES:
        planned = _planned(plan, case)
        if case.route in quarantined:
            planned = {one for one in planned if one[1] is not _TOLD_ONLY_WHERE_RECORDS_LAND}
        assert planned == told[f"silver_{case.route}"], case.change
    assert _without_changes(read_plan(_declared(landing)), mode)


def _without_changes(plan: PipelinePlan, mode: Mode) -> bool:
    """Once records have come, there is nothing new; what is withheld is withheld as before."""
    assert bool(plan.summary.as_before) == (mode is not Mode.EVOLVE)
    return not any(table.changes for table in plan.tables)


def _planned(plan: PipelinePlan, case: Case) -> set[tuple[str, Outcome]]:
    (table,) = [one for one in plan.tables if one.table == f"silver_{case.route}"]
    return {(one.change.kind, one.change.outcome) for one in table.changes}


def _told(landing: in_process.Pipeline, batch: int) -> dict[str, set[tuple[str, Outcome]]]:
    told: dict[str, set[tuple[str, Outcome]]] = defaultdict(set)
    for row in landing.ledger.snapshot().entries(SchemaEntry, since=batch):
        entry = row.entry
        if entry.change != SameColumns.__name__:
            told[entry.table].add((entry.change, Outcome(entry.outcome)))
    return told


def _registered(landing: in_process.Pipeline, which: Which, payloads: Payloads) -> list[bytes]:
    """A record of every case, its schema made known."""
    made = []
    for case, payload in zip(CASES, payloads[which], strict=True):
        text = case.before if which == "old" else case.after
        assert text is not None
        schema_id = landing.schemas.register(case.route, text)
        message = ENVELOPE.decoder.message(
            game_name=case.route, schema_id=schema_id, payload=payload
        )
        made.append(bytes(message.SerializeToString()))
    return made


def _declared(landing: in_process.Pipeline) -> Pipeline:
    return Pipeline(
        name="games",
        source=Delta(path=str(landing.folder / "inbox")),
        registry=str(landing.schemas.folder),
        envelope=Wrapper(
            message="wrapper", route="game_name", schema_id="schema_id", payload="payload"
        ),
        lake=str(landing.lake),
        contract=landing.contract,
    )
