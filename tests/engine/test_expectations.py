"""Expectations, from records to tables: landed and quarantined rows, stops, and the ledger."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from headgate.config import Contract, Expectation
from headgate.engine.events import ExpectationsBroken
from headgate.errors import LandingError, PipelineFileError
from headgate.lake.ledger_entries import ExpectationEntry
from headgate.lake.staged import ExpectationResult, sum_expectations
from headgate.testing.lake import stage_in_process
from tests.engine.games import PLAIN, WIDER, GamesLake, extent, record, records
from tests.quarantine.replaying import in_quarantine, replay

Expect = dict[str, dict[str, Expectation]]


def expect(on_fail: Any = "quarantine", pattern: str = "silver_*", **rules: str) -> Expect:
    return {
        pattern: {name: Expectation(rule=text, on_fail=on_fail) for name, text in rules.items()}
    }


def land(lake: GamesLake, batch: int, *values: bytes) -> None:
    lake.start().land(extent(batch), stage_in_process(records(values, first_offset=1000 * batch)))


def recorded_results(lake: GamesLake) -> dict[tuple[str, str], tuple[int, int]]:
    """Rows checked and failed by table and rule, as the ledger has them."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for row in lake.ledger.snapshot().entries(ExpectationEntry):
        entry = row.entry
        before = found.get((entry.table, entry.rule), (0, 0))
        found[entry.table, entry.rule] = before[0] + entry.checked, before[1] + entry.failed
    return found


def test_rows_that_break_a_rule_and_no_others_are_in_quarantine(tmp_path: Path) -> None:
    lake = GamesLake(tmp_path, expect=expect(small="n < 990"))
    values = [record("chess" if n % 2 else "go", n) for n in range(1000)]
    lake.start().land(
        extent(0), stage_in_process(records(values[:400]), records(values[400:], first_offset=400))
    )
    offsets = lake.offsets()
    assert offsets["quarantine"] == list(range(990, 1000))
    assert sorted(offsets["silver_chess"] + offsets["silver_go"]) == list(range(990))
    rows = lake.rows("quarantine")
    assert {(row["reason"], row["detail"]) for row in rows} == {("expectation", "small: n < 990")}
    assert [row["value"] for row in rows] == values[990:]
    assert [row["route"] for row in rows] == ["go", "chess"] * 5
    assert recorded_results(lake) == {
        ("silver_chess", "small"): (500, 5),
        ("silver_go", "small"): (500, 5),
    }
    (event,) = [one for one in lake.events if isinstance(one, ExpectationsBroken)]
    assert [(one.table, one.checked, one.failed) for one in event.rules] == [
        ("silver_chess", 500, 5),
        ("silver_go", 500, 5),
    ]


def test_a_warning_is_counted_and_the_row_lands(tmp_path: Path) -> None:
    lake = GamesLake(tmp_path, expect=expect("warn", small="n < 2"))
    land(lake, 0, *(record("chess", n) for n in range(3)))
    assert lake.offsets() == {"silver_chess": [0, 1, 2]}
    assert recorded_results(lake) == {("silver_chess", "small"): (3, 1)}


def test_rules_that_hold_emit_no_event(tmp_path: Path) -> None:
    lake = GamesLake(tmp_path, expect=expect(small="n < 20"))
    land(lake, 0, record("chess", 1))
    assert recorded_results(lake) == {("silver_chess", "small"): (1, 0)}
    assert not any(isinstance(one, ExpectationsBroken) for one in lake.events)


def test_a_failure_stops_the_batch_until_the_rule_is_removed(tmp_path: Path) -> None:
    lake = GamesLake(tmp_path, expect=expect("fail", "silver_chess", small="n < 2"))
    land(lake, 0, record("chess", 1), record("go", 9))
    before = lake.offsets()
    values = [record("chess", 1), record("chess", 5), record("go", 3)]
    with pytest.raises(LandingError) as caught:
        land(lake, 1, *values)
    assert caught.value.code == "expectation-failed"
    assert caught.value.where == "silver_chess"
    assert "`small` does not hold for 1 of 2 rows, such as games:0:1001: n < 2" in str(caught.value)
    assert lake.offsets() == before
    assert lake.ledger.landed() == 0
    lake.declare(expect={})
    land(lake, 1, *values)
    assert lake.offsets() == {"silver_chess": [0, 1000, 1001], "silver_go": [1, 1002]}


def test_the_first_rule_that_rejects_a_row_is_its_reason_and_all_are_counted(
    tmp_path: Path,
) -> None:
    rules = {
        "warned": Expectation(rule="n > 100", on_fail="warn"),
        "first": Expectation(rule="n <> 2", on_fail="quarantine"),
        "second": Expectation(rule="n < 2", on_fail="quarantine"),
    }
    lake = GamesLake(tmp_path, expect={"silver_*": rules})
    land(lake, 0, *(record("chess", n) for n in range(1, 4)))
    details = {row["_offset"]: row["detail"] for row in lake.rows("quarantine")}
    assert details == {1: "first: n <> 2", 2: "second: n < 2"}
    assert recorded_results(lake) == {
        ("silver_chess", "warned"): (3, 3),
        ("silver_chess", "first"): (3, 1),
        ("silver_chess", "second"): (3, 2),
    }


def test_rules_are_for_the_tables_that_match(tmp_path: Path) -> None:
    both = expect(pattern="silver_c*", small="n < 1") | expect(pattern="*", small="n < 5")
    lake = GamesLake(tmp_path, expect=both)
    land(lake, 0, *(record(route, 3) for route in ("chess", "go")), record("go", 7))
    assert lake.offsets() == {"silver_go": [1], "quarantine": [0, 2]}
    assert recorded_results(lake) == {
        ("silver_chess", "small"): (1, 1),
        ("silver_go", "small"): (2, 1),
    }


def test_a_table_of_which_no_row_lands_is_counted(tmp_path: Path) -> None:
    lake = GamesLake(tmp_path, expect=expect(none="n < 0"))
    land(lake, 0, record("chess", 1), record("chess", 2, WIDER))
    assert lake.offsets() == {"quarantine": [0, 1]}
    assert recorded_results(lake) == {("silver_chess", "none"): (2, 2)}


def test_a_column_that_appears_later_is_null_until_then(tmp_path: Path) -> None:
    lake = GamesLake(tmp_path, expect=expect(named="name = 'x'"))
    land(lake, 0, record("chess", 1))
    land(lake, 1, record("chess", 2, WIDER), record("chess", 3))
    assert lake.offsets() == {"silver_chess": [1000], "quarantine": [0, 1001]}
    lake.declare(expect=expect(named="name IS NULL OR name = 'x'"))
    land(lake, 2, record("chess", 4))
    assert lake.offsets()["silver_chess"] == [1000, 2000]


def test_rules_can_read_the_origin_of_a_record(tmp_path: Path) -> None:
    lake = GamesLake(tmp_path, expect=expect(late="_offset >= 1 AND _topic = 'games'"))
    land(lake, 0, record("chess", 1), record("chess", 2))
    assert lake.offsets() == {"silver_chess": [1], "quarantine": [0]}


def test_rejected_rows_change_no_table(tmp_path: Path) -> None:
    lake = GamesLake(
        tmp_path, expect=expect(unnamed="name IS NULL"), contract=Contract(columns="freeze")
    )
    land(lake, 0, record("chess", 1))
    land(lake, 1, record("chess", 2, WIDER))
    assert [row["reason"] for row in lake.rows("quarantine")] == ["expectation"]
    assert "name" not in lake.rows("silver_chess")[0]


def test_bronze_has_the_rows_that_rules_reject(tmp_path: Path) -> None:
    lake = GamesLake(tmp_path, bronze="bronze", expect=expect(small="n < 2"))
    land(lake, 0, record("chess", 1), record("chess", 2))
    assert lake.offsets() == {"bronze": [0, 1], "silver_chess": [0], "quarantine": [1]}


def test_replays_check_the_current_rules(tmp_path: Path) -> None:
    lake = GamesLake(tmp_path, expect=expect(small="n < 2"))
    land(lake, 0, *(record("chess", n) for n in range(1, 5)))
    assert replay(lake).remaining == {"expectation": 3}
    lake.declare(expect=expect(smaller="n < 4"))
    done = replay(lake)
    assert (done.landed, done.remaining) == ({"silver_chess": 2}, {"expectation": 1})
    assert in_quarantine(lake) == {1: "replayed", 2: "replayed", 3: "open"}
    (row,) = [row for row in lake.rows("quarantine") if row["state"] == "open"]
    assert row["detail"] == "smaller: n < 4"
    assert recorded_results(lake) == {("silver_chess", "small"): (4, 3)}


def test_records_that_cannot_be_decoded_are_not_checked(tmp_path: Path) -> None:
    lake = GamesLake(tmp_path, expect=expect("fail", none="n < 5"))
    land(lake, 0, record("chess", 1), record("chess", 1, PLAIN + 20))
    assert recorded_results(lake) == {("silver_chess", "none"): (1, 0)}


def test_a_plan_with_rules_can_be_sent_to_executors(tmp_path: Path) -> None:
    plan = GamesLake(tmp_path, expect=expect(small="n < 2")).plan
    assert pickle.loads(pickle.dumps(plan.expect)) == plan.expect


def test_a_rule_that_cannot_be_checked_is_refused_before_anything_runs() -> None:
    with pytest.raises(PipelineFileError, match="SOUNDEX"):
        Expectation(rule="soundex(name) = 'x'", on_fail="warn")


def test_results_of_tasks_are_summed() -> None:
    one, other = (
        ExpectationResult("t", "r", "warn", 3, 1),
        ExpectationResult("t", "r", "warn", 4, 2),
    )
    apart = ExpectationResult("t", "s", "warn", 1, 0)
    assert sum_expectations([one, apart, other]) == [
        ExpectationResult("t", "r", "warn", 7, 3),
        apart,
    ]
