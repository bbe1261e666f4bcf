from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from time import time
from typing import Any

import pytest

from headgate.engine.events import BatchLanded, BatchSkipped, SchemaChanged, TableWaits
from headgate.engine.plan import BatchPlan
from headgate.lake.ledger import Pending
from headgate.lake.ledger_entries import SchemaEntry, TableEntry
from headgate.lake.staged import StagedFile
from headgate.schema.changes import AddColumn, CreateTable
from headgate.testing import Crash, FailingCommitter
from headgate.testing.lake import stage_in_process
from tests.engine.games import RETYPED, TWIN, UNKNOWN, WIDER, GamesLake, extent, record, records
from tests.lake.crashing_ledger import CrashingLedger
from tests.lake.recorded import all_rows
from tests.lake.staged import files_in


@pytest.fixture
def lake(tmp_path: Path) -> GamesLake:
    return GamesLake(tmp_path)


@pytest.fixture
def failing(lake: GamesLake) -> FailingCommitter:
    lake.committer = failing = FailingCommitter(lake.committer)
    return failing


CHESS_AND_GO = stage_in_process(records([record("chess", 1), record("go", 2), b"\xff"]))
MORE_CHESS = stage_in_process(records([record("chess", 3, WIDER)], 3))


def test_batch_creates_its_tables_and_ends_with_the_ledger(lake: GamesLake) -> None:
    lake.start().land(extent(0), CHESS_AND_GO)
    assert lake.offsets() == {"silver_chess": [0], "silver_go": [1], "quarantine": [2]}
    kinds = [row.entry.kind for row in all_rows(lake.ledger)]
    assert sorted(kinds) == ["batch", "run", *["schema"] * 3, "start", *["table"] * 3]
    progress = lake.ledger.progress()
    assert progress is not None
    assert (progress.landed, progress.ended_at) == (0, {"games": 1})


def test_batch_is_planned_with_the_time_it_began_and_all_pending_files(
    lake: GamesLake, failing: FailingCommitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing.refusing.add("silver_go")
    lander = lake.start()
    lander.land(extent(0), CHESS_AND_GO)
    (waits,) = lander.pending
    lander.pending_elsewhere = lambda: [Pending(7, replace(waits.file, path="of-a-replay"))]
    plans: list[BatchPlan] = []
    pending: list[str] = []

    def with_pending(plan: BatchPlan, files: Iterable[StagedFile]) -> BatchPlan:
        pending.extend(file.path for file in files)
        return plan

    def stage(plan: BatchPlan) -> list[StagedFile]:
        plans.append(plan)
        return MORE_CHESS(plan)

    monkeypatch.setattr(BatchPlan, "with_pending", with_pending)
    before = time()
    lander.land(extent(1), stage)
    assert before * 1000 <= plans[0].began <= time() * 1000
    assert pending == [waits.file.path, "of-a-replay"]


def test_table_has_the_metadata_columns_whether_a_record_has_them_or_not(
    lake: GamesLake,
) -> None:
    lake.start().land(extent(0), CHESS_AND_GO)
    [row] = lake.rows("silver_chess")
    assert row.keys() == {
        *("n", "_topic", "_partition", "_offset", "_timestamp", "_schema_id"),
        *("_key", "_headers"),
    }
    assert (row["_key"], row["_headers"]) == (None, None)


def test_listener_gets_the_events_of_a_batch(lake: GamesLake) -> None:
    lander = lake.start()
    lander.land(extent(0), CHESS_AND_GO)
    lander.land(extent(1), MORE_CHESS)
    changed = [event for event in lake.events if isinstance(event, SchemaChanged)]
    assert {(one.batch, one.table, type(one.change)) for one in changed} == {
        (0, "silver_chess", CreateTable),
        (0, "silver_go", CreateTable),
        (0, "quarantine", CreateTable),
        (1, "silver_chess", AddColumn),
    }
    first, second = [event for event in lake.events if isinstance(event, BatchLanded)]
    assert (first.rows, first.tables, first.new_tables, first.changes) == (2, 2, 2, 0)
    assert first.quarantined == {"envelope_undecodable": 1}
    assert (second.rows, second.tables, second.new_tables, second.changes) == (1, 1, 0, 1)


def test_ledger_has_every_table_and_every_schema_change(lake: GamesLake) -> None:
    lander = lake.start()
    lander.land(extent(0), CHESS_AND_GO)
    lander.land(extent(1), MORE_CHESS)
    ledger = lake.ledger.snapshot()
    tables = ledger.entries(TableEntry, table="silver_chess")
    assert [(row.version, row.entry.rows, row.entry.route) for row in tables] == [
        (0, 1, "chess"),
        (1, 1, "chess"),
    ]
    created, added = ledger.entries(SchemaEntry, table="silver_chess")
    assert created.entry.change == "CreateTable"
    assert added.entry == SchemaEntry.of(
        "silver_chess", AddColumn("name", "string"), (WIDER,), "chess"
    )
    assert (added.entry.change, added.entry.outcome) == ("AddColumn", "applied")


def test_types_and_names_that_clash_are_kept_apart_in_one_batch(lake: GamesLake) -> None:
    lander = lake.start()
    lander.land(extent(0), stage_in_process(records([record("chess", 1, WIDER)])))
    values = [record("chess", 2, RETYPED), record("chess", 3, TWIN)]
    lander.land(extent(1), stage_in_process(records(values, 1)))
    rows = lake.rows("silver_chess")
    twin = next(name for name in rows[0] if name.startswith("Name__"))
    assert [(row["n"], row["n__string"], row["name"], row[twin]) for row in rows] == [
        (1, None, "x", None),
        (None, "2", None, None),
        (3, None, None, "x"),
    ]


def test_batch_that_the_ledger_has_is_skipped(lake: GamesLake) -> None:
    lake.start().land(extent(0), CHESS_AND_GO)
    lake.start().land(extent(0), CHESS_AND_GO)
    assert BatchSkipped(0) in lake.events
    assert lake.offsets() == {"silver_chess": [0], "silver_go": [1], "quarantine": [2]}


def test_failing_table_is_pending_and_the_others_land(
    lake: GamesLake, failing: FailingCommitter
) -> None:
    failing.refusing.add("silver_chess")
    lander = lake.start()
    lander.land(extent(0), CHESS_AND_GO)
    assert lake.offsets() == {"silver_go": [1], "quarantine": [2]}
    [waits] = [event for event in lake.events if isinstance(event, TableWaits)]
    assert (waits.batch, waits.table, waits.rows) == (0, "silver_chess", 1)
    progress = lake.ledger.progress()
    assert progress is not None
    assert [one.file.table for one in progress.pending] == ["silver_chess"]

    failing.heal()
    lander.land(extent(1), MORE_CHESS)
    assert lake.offsets()["silver_chess"] == [0, 3]
    progress = lake.ledger.progress()
    assert progress is not None
    assert progress.pending == ()


def test_pending_table_lands_with_a_batch_that_has_nothing_for_it(
    lake: GamesLake, failing: FailingCommitter
) -> None:
    failing.refusing.add("silver_go")
    lander = lake.start()
    lander.land(extent(0), CHESS_AND_GO)
    failing.heal()
    lander.land(extent(1), MORE_CHESS)
    assert lake.offsets()["silver_go"] == [1]


def test_pending_table_lands_when_the_next_run_starts(
    lake: GamesLake, failing: FailingCommitter
) -> None:
    failing.refusing |= {"silver_chess", "quarantine"}
    lake.start().land(extent(0), CHESS_AND_GO)
    failing.heal()
    for _ in range(3):
        lake.start()
    assert lake.offsets() == {"silver_chess": [0], "silver_go": [1], "quarantine": [2]}


def test_run_that_crashed_after_a_pending_table_landed_continues(
    lake: GamesLake, failing: FailingCommitter
) -> None:
    failing.refusing.add("silver_go")
    lander = lake.start()
    lander.land(extent(0), CHESS_AND_GO)
    failing.heal()
    failing.crashing_before.add("silver_chess")
    with pytest.raises(Crash):
        lander.land(extent(1), MORE_CHESS)
    failing.heal()
    lake.start().land(extent(1), MORE_CHESS)
    assert lake.offsets() == {"silver_chess": [0, 3], "silver_go": [1], "quarantine": [2]}


@pytest.mark.parametrize("table", ["silver_chess", "silver_go", "quarantine"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_crash_at_any_table_loses_and_duplicates_nothing(
    lake: GamesLake, failing: FailingCommitter, table: str, when: str
) -> None:
    crashing = failing.crashing_before if when == "before" else failing.crashing_after
    crashing.add(table)
    with pytest.raises(Crash):
        lake.start().land(extent(0), CHESS_AND_GO)
    failing.heal()
    lake.start().land(extent(0), CHESS_AND_GO)
    assert lake.offsets() == {"silver_chess": [0], "silver_go": [1], "quarantine": [2]}


def test_batch_that_does_not_reach_the_ledger_can_be_landed_again_by_the_same_run(
    lake: GamesLake, failing: FailingCommitter
) -> None:
    lake.ledger = ledger = CrashingLedger(str(lake.path), "ledger", "games")
    lander = lake.start()
    failing.refusing.add("silver_chess")
    ledger.crashing = True
    with pytest.raises(Crash):
        lander.land(extent(0), CHESS_AND_GO)
    ledger.crashing = False
    failing.heal()
    lander.land(extent(0), CHESS_AND_GO)
    assert lake.offsets() == {"silver_chess": [0], "silver_go": [1], "quarantine": [2]}


def test_bronze_lands_with_silver(tmp_path: Path) -> None:
    lake = GamesLake(tmp_path, bronze="bronze")
    lander = lake.start()
    lander.land(extent(0), CHESS_AND_GO)
    unknown = [record("chess", 4, UNKNOWN), record("no table", 5, UNKNOWN)]
    lander.land(extent(1), stage_in_process(records(unknown, 3)))
    assert lake.offsets() == {
        "bronze": [0, 1, 3],
        "silver_chess": [0],
        "silver_go": [1],
        "quarantine": [2, 3, 4],
    }
    assert [row["route"] for row in lake.rows("bronze")] == ["chess", "go", "chess"]
    assert lander.known_tables == {"silver_chess", "silver_go"}


ROUTES = ["d", "b", "e", "a", "c"]


def by_task(*parts: str) -> Any:
    """A batch of one record a route, split among tasks."""
    offsets = {route: at for at, route in enumerate(ROUTES)}
    return stage_in_process(
        *(records([record(route, 1) for route in part], offsets[part[0]]) for part in parts)
    )


@pytest.mark.parametrize(
    "tasks", [("dbeac",), ("db", "eac"), ("d", "b", "e", "a", "c")], ids=["one", "two", "five"]
)
def test_no_more_tables_than_the_cap_are_created(tmp_path: Path, tasks: tuple[str, ...]) -> None:
    found = []
    for attempt in ("first", "second"):
        lake = GamesLake(tmp_path / attempt, max_tables=2)
        lake.start().land(extent(0), by_task(*tasks))
        offsets = lake.offsets()
        assert len(offsets) == 3
        assert sorted(at for rows in offsets.values() for at in rows) == [0, 1, 2, 3, 4]
        assert {row["reason"] for row in lake.rows("quarantine")} == {"too_many_tables"}
        found.append(offsets)
    assert found[0] == found[1]


def test_tables_that_many_tasks_choose_are_the_first_by_name(tmp_path: Path) -> None:
    lake = GamesLake(tmp_path, max_tables=2)
    lake.start().land(extent(0), by_task("db", "ea", "c"))
    assert list(lake.offsets()) == ["quarantine", "silver_a", "silver_b"]


def test_files_of_tables_that_were_not_chosen_are_removed(tmp_path: Path) -> None:
    lake = GamesLake(tmp_path, max_tables=2)
    lake.start().land(extent(0), by_task("db", "ea", "c"))
    assert {name: len(files_in(lake.path, f"silver_{name}")) for name in "abcde"} == {
        **dict.fromkeys("ab", 1),
        **dict.fromkeys("cde", 0),
    }


def test_existing_tables_stay_when_the_cap_is_reached(tmp_path: Path) -> None:
    lake = GamesLake(tmp_path, max_tables=2)
    lake.start().land(extent(0), stage_in_process(records([record("x", 1), record("y", 1)])))
    values = [record("y", 2), record("z", 2), record("x", 2)]
    lake.start().land(extent(1), stage_in_process(records(values, 2)))
    assert lake.offsets() == {"silver_x": [0, 4], "silver_y": [1, 2], "quarantine": [3]}


def test_pending_table_counts_towards_the_cap(tmp_path: Path) -> None:
    lake = GamesLake(tmp_path, max_tables=1)
    lake.committer = failing = FailingCommitter(lake.committer)
    failing.refusing.add("silver_x")
    lake.start().land(extent(0), stage_in_process(records([record("x", 1)])))
    for batch in (1, 2):
        lake.start().land(extent(batch), stage_in_process(records([record("y", 1)], batch)))
    failing.heal()
    lake.start().land(extent(3), stage_in_process(records([record("x", 2)], 3)))
    assert lake.offsets() == {"silver_x": [0, 3], "quarantine": [1, 2]}


def test_history_of_a_table_is_complete_after_a_crash_before_the_ledger(lake: GamesLake) -> None:
    ledger = CrashingLedger(str(lake.path), "ledger", "games")
    lake.ledger = ledger
    lake.start().land(extent(0), CHESS_AND_GO)
    ledger.crashing = True
    with pytest.raises(Crash):
        lake.start().land(extent(1), MORE_CHESS)
    ledger.crashing = False
    lake.start().land(extent(1), MORE_CHESS)
    changes = ledger.snapshot().entries(SchemaEntry, table="silver_chess")
    assert [(row.entry.change, row.entry.column) for row in changes] == [
        ("CreateTable", "silver_chess"),
        ("AddColumn", "name"),
    ]
