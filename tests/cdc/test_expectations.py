"""Expectations on changes: deletions are not checked, merged tables get what lands."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.engine.events import ExpectationsBroken
from headgate.errors import LandingError
from headgate.inspect.status import read_status
from headgate.lake.ledger_entries import ExpectationEntry
from headgate.lake.staged import ExpectationResult
from headgate.quarantine.operations import replay_quarantine
from tests.inspect.change_lake import ShopLake, change

RULE = (
    'expect: {{{pattern}: {{named: {{rule: "{rule}", on_fail: {on_fail}}}}}}}\n# contract: evolve'
)


@pytest.fixture
def lake(tmp_path: Path) -> ShopLake:
    return ShopLake(tmp_path)


def declare(
    lake: ShopLake, rule: str, on_fail: str = "quarantine", pattern: str = "log_shop_*"
) -> str:
    """Declare a rule; return its text, so that it can be removed again."""
    text = RULE.format(pattern=pattern, rule=rule, on_fail=on_fail)
    lake.declare("# contract: evolve", text)
    return text


def checks(lake: ShopLake) -> list[tuple[str, int, int]]:
    return [(entry.table, entry.checked, entry.failed) for entry in _entries(lake)]


def _entries(lake: ShopLake) -> list[ExpectationEntry]:
    return [row.entry for row in lake.ledger.snapshot().entries(ExpectationEntry)]


def names(lake: ShopLake) -> dict[int, str]:
    return {row["id"]: row["name"] for row in lake.rows("shop_orders")}


@pytest.mark.parametrize("pattern", ["log_shop_*", "shop_orders"])
def test_changes_that_break_a_rule_are_in_quarantine(lake: ShopLake, pattern: str) -> None:
    declare(lake, "name <> 'bad'", pattern=pattern)
    lake.land_changes(
        *(change("orders", key, "bad" if key == 50 else "new", at=1) for key in range(1, 101))
    )
    (row,) = lake.rows("quarantine")
    assert (row["reason"], row["detail"]) == ("expectation", "named: name <> 'bad'")
    assert row["value"]
    assert set(names(lake)) == set(range(1, 101)) - {50}
    assert checks(lake) == [("log_shop_orders", 100, 1)]
    (event,) = [entry for entry in lake.events if isinstance(entry, ExpectationsBroken)]
    assert event.rules == (ExpectationResult("log_shop_orders", "named", "quarantine", 100, 1),)
    assert read_status(lake.pipeline).expectations == event.rules


def test_deletions_are_not_checked(lake: ShopLake) -> None:
    lake.land_changes(change("orders", 1, "bad", at=1), change("orders", 2, "new", at=1))
    declare(lake, "name <> 'bad'")
    lake.land_changes(
        change("orders", 1, "bad", at=2, kind="DELETE"),
        change("orders", 2, "bad", at=2, kind="UPDATE"),
    )
    assert names(lake) == {2: "new"}
    assert checks(lake) == [("log_shop_orders", 1, 1)]


def test_file_without_accepted_changes_is_counted(lake: ShopLake) -> None:
    declare(lake, "name <> 'bad'")
    lake.land_changes(change("orders", 1, "bad", at=1))
    assert checks(lake) == [("log_shop_orders", 1, 1)]


def test_failure_stops_the_batch_until_the_rule_is_removed(lake: ShopLake) -> None:
    text = declare(lake, "name <> 'bad'", "fail")
    with pytest.raises(LandingError) as caught:
        lake.land_changes(change("orders", 1, "new", at=1), change("orders", 2, "bad", at=1))
    assert caught.value.code == "expectation-failed"
    assert "does not hold for 1 of 2 rows, such as record 1 of " in str(caught.value)
    assert lake.ledger.landed() is None
    assert not (lake.path / "log_shop_orders" / "_delta_log").exists()
    lake.declare(text, "# contract: evolve")
    lake.run()
    assert names(lake) == {1: "new", 2: "bad"}


def test_warning_is_counted_and_the_change_lands(lake: ShopLake) -> None:
    declare(lake, "name <> 'bad'", "warn")
    lake.land_changes(change("orders", 1, "bad", at=1))
    assert names(lake) == {1: "bad"}
    assert checks(lake) == [("log_shop_orders", 1, 1)]


def test_rule_on_a_column_that_appears_later(lake: ShopLake) -> None:
    declare(lake, "amount IS NULL OR amount > 0")
    lake.land_changes(change("orders", 1, "new", at=1))
    lake.land_changes(
        change("orders", 2, "new", at=2, amount=5), change("orders", 3, "new", at=2, amount=-5)
    )
    assert set(names(lake)) == {1, 2}


def test_replay_checks_the_current_rules(lake: ShopLake) -> None:
    text = declare(lake, "name <> 'bad'")
    lake.land_changes(change("orders", 1, "bad", at=1), change("orders", 2, "new", at=1))
    assert replay_quarantine(lake.pipeline).remaining == {"expectation": 1}
    lake.declare(text, "# contract: evolve")
    assert replay_quarantine(lake.pipeline).landed == {"log_shop_orders": 1}
    assert names(lake) == {1: "bad", 2: "new"}
