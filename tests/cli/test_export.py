"""`headgate export sdp`."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Headgate
from tests.cli.snapshot import Snapshot
from tests.inspect.gold_declared import GAMES, declare_gold


def test_export_sdp(headgate: Headgate, snapshot: Snapshot, tmp_path: Path) -> None:
    headgate("init", "games-embedded")
    declare_gold(tmp_path / "games.yaml", GAMES)
    printed = headgate("export", "sdp", "project")
    assert (printed.code, printed.err) == (0, "")
    snapshot.check(printed.out)
    assert (tmp_path / "project" / "transformations" / "headgate_gold.py").is_file()


def test_export_of_no_gold_says_what_to_do(headgate: Headgate) -> None:
    headgate("init", "games-embedded")
    printed = headgate("export", "sdp", "project")
    assert printed.code == 2
    assert "hint: declare some under `gold` in the pipeline file" in printed.err
