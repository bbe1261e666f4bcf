"""`headgate graph`: the same lake as a tree, a flowchart and JSON."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from headgate.cli.commands.graph import branches
from tests.cli.conftest import Headgate
from tests.cli.snapshot import Snapshot
from tests.inspect.change_lake import make_shop_lake
from tests.inspect.gold_declared import GAMES, SHOP, declare_gold
from tests.inspect.small_lake import SmallLake, make_small_lake
from tests.inspect.test_graph import many


@pytest.fixture
def games(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmallLake:
    made = make_small_lake(tmp_path)
    declare_gold(made.file, GAMES)
    later = made.made_at + timedelta(hours=2, minutes=30)
    monkeypatch.setattr("headgate.cli.output.now", lambda: later)
    return made


@pytest.mark.parametrize("options", ["", "--mermaid"])
def test_graph_of_games(
    headgate: Headgate, snapshot: Snapshot, games: SmallLake, options: str
) -> None:
    printed = headgate("graph", *options.split())
    assert (printed.code, printed.err) == (0, "")
    snapshot.check(printed.out)


def test_graph_of_changes(
    headgate: Headgate, snapshot: Snapshot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = make_shop_lake(tmp_path)
    declare_gold(shop.file, SHOP)
    later = shop.made_at + timedelta(hours=2, minutes=30)
    monkeypatch.setattr("headgate.cli.output.now", lambda: later)
    snapshot.check(headgate("graph").out)


def test_graph_of_many_games_is_folded(
    headgate: Headgate, snapshot: Snapshot, games: SmallLake
) -> None:
    games.register(20, versions=[1], first=5)
    games.land(400, bad_share=0)
    snapshot.check(headgate("graph").out)
    assert "silver_rummy" in headgate("graph", "--all").out


def test_graph_before_the_first_run(headgate: Headgate, snapshot: Snapshot) -> None:
    headgate("init", "games-embedded")
    snapshot.check(headgate("graph").out)


def test_graph_as_json(headgate: Headgate, games: SmallLake) -> None:
    printed = headgate("graph", "--json")
    assert (printed.code, printed.err) == (0, "")
    data = json.loads(printed.out)["data"]
    names = {node["name"] for node in data["nodes"]}
    assert {"silver_chess", "gold_chess_player_agg", "unified_gold", "ledger"} <= names
    assert {"source": "silver_chess", "target": "gold_chess_player_agg"} in data["edges"]
    assert all({edge["source"], edge["target"]} <= names for edge in data["edges"])


def test_two_forms_at_once_are_refused(headgate: Headgate, games: SmallLake) -> None:
    printed = headgate("graph", "--json", "--mermaid")
    assert (printed.code, "choose one" in printed.out) == (2, True)


def test_a_table_with_several_inputs_is_drawn_where_they_branch() -> None:
    lines = [f"{before}{node.name}" for before, node, _ in branches(many(2))]
    assert lines == [
        "topic games",
        "├─ silver_0",
        "│  └─ gold_0",
        "├─ silver_1",
        "│  └─ gold_1",
        "└─ unified",
    ]
