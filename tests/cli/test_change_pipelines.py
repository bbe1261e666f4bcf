"""Commands that are for streams of records say so; those that are for both take both."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Headgate


@pytest.mark.parametrize(
    "words",
    [
        ["plan", "shop.yaml"],
        ["schema", "diff", "shop_orders", "orders-value", "--pipeline", "shop.yaml"],
    ],
    ids=" ".join,
)
def test_commands_for_records_refuse_change_files(headgate: Headgate, words: list[str]) -> None:
    headgate("init", "shop")
    printed = headgate(*words)
    assert printed.code == 2
    assert "shop.yaml declares change files" in printed.err
    assert "[bad-argument]" in printed.err
    assert "hint: " in printed.err


@pytest.mark.parametrize(
    "words",
    [
        ["list"],
        ["replay"],
        ["drop", "--reason", "order_unknown", "--yes"],
    ],
    ids=" ".join,
)
def test_quarantine_of_a_pipeline_that_never_ran_is_empty(
    headgate: Headgate, words: list[str]
) -> None:
    headgate("init", "shop")
    printed = headgate("quarantine", *words)
    assert (printed.code, printed.err) == (0, "")
    assert printed.out.startswith("No records in quarantine")


@pytest.mark.parametrize("command", ["status", "tables"])
def test_commands_for_both_take_change_files(headgate: Headgate, command: str) -> None:
    headgate("init", "shop")
    printed = headgate(command, "shop.yaml")
    assert (printed.code, printed.err) == (0, "")
    assert "Nothing has landed yet" in printed.out


def test_check_takes_change_files(headgate: Headgate) -> None:
    headgate("init", "shop")
    printed = headgate("check")
    assert (printed.code, printed.out) == (0, "shop.yaml: ok\n")


def test_doctor_takes_change_files(headgate: Headgate) -> None:
    headgate("init", "shop")
    printed = headgate("doctor", "shop.yaml", "--json")
    states = {each["name"]: each["state"] for each in json.loads(printed.out)["data"]}
    assert states["pipeline file"] == "ok"
    assert states["change files"] == "fail"
    assert "registry" not in states
