"""Rules that rows broke, as a run and `headgate status` show them."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from headgate.cli.progress.lines import JsonLines, Lines, print_summary
from headgate.cli.progress.live import LiveView
from headgate.cli.progress.tally import Tally
from headgate.engine.events import ExpectationsBroken
from headgate.lake.staged import ExpectationResult
from tests.cli.conftest import Headgate
from tests.cli.events import landed
from tests.inspect.change_lake import ShopLake, change

BROKEN = ExpectationsBroken(
    0,
    (
        ExpectationResult("silver_chess", "valid_user", "quarantine", 1000, 10),
        ExpectationResult("silver_go", "valid_user", "quarantine", 500, 2),
        ExpectationResult("silver_go", "plausible", "warn", 500, 30),
        ExpectationResult("silver_shogi", "plausible", "warn", 500, 1),
    ),
)


@pytest.fixture
def tally() -> Tally:
    return Tally("games", "/lake")


def test_a_log_has_the_worst_of_them(tally: Tally, capsys: pytest.CaptureFixture[str]) -> None:
    Lines(tally)(BROKEN)
    assert (
        capsys.readouterr()
        .out.rstrip()
        .endswith(
            "batch 0: rules broken: silver_go plausible 30 of 500 (warn), silver_chess "
            "valid_user 10 of 1,000 (quarantine), silver_go valid_user 2 of 500 (quarantine) "
            "and 1 more"
        )
    )


def test_json_has_every_rule(tally: Tally, capsys: pytest.CaptureFixture[str]) -> None:
    JsonLines(tally)(BROKEN)
    printed = json.loads(capsys.readouterr().out)
    assert printed["event"] == "expectations_broken"
    assert printed["rules"][0] == vars(BROKEN.rules[0])
    assert len(printed["rules"]) == 4


def test_the_live_view_and_the_summary_add_up(
    tally: Tally, capsys: pytest.CaptureFixture[str]
) -> None:
    view = LiveView(tally)
    for event in (BROKEN, landed(0, 1990, bad=12), BROKEN):
        view(event)
    drawn = io.StringIO()
    Console(file=drawn, width=100).print(view)
    assert "rules broken    plausible 62 (warn), valid_user 24 (quarantine)" in drawn.getvalue()
    print_summary("Done", tally)
    said = capsys.readouterr().out
    assert "rules broken    plausible, 62 rows (warn)" in said
    assert "valid_user, 24 rows (quarantine)" in said


def test_status_shows_rules(tmp_path: Path, headgate: Headgate) -> None:
    lake = ShopLake(tmp_path)
    lake.declare(
        "# contract: evolve",
        "expect: {'log_*': {named: {rule: \"name <> 'bad'\", on_fail: quarantine}, "
        "known: {rule: id > 0}}}\n# contract: evolve",
    )
    lake.land_changes(change("orders", 1, "new", at=1), change("orders", 2, "bad", at=1))
    lake.land_changes(change("orders", 3, "new", at=2))
    said = headgate("status", str(lake.file)).out
    assert "1 passed by all rows, 1 broken" in said
    assert "log_shop_orders named: 1 of 3 rows (quarantine)" in said
    printed = json.loads(headgate("status", str(lake.file), "--json").out)["data"]
    assert printed["expectations"] == [
        vars(ExpectationResult("log_shop_orders", "named", "quarantine", 3, 1)),
        vars(ExpectationResult("log_shop_orders", "known", "warn", 3, 0)),
    ]
