"""`headgate export sdp`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from headgate.cli.commands.export import steps_after
from tests.cli.conftest import Headgate
from tests.cli.snapshot import Snapshot
from tests.inspect.gold_declared import GAMES, declare_gold


def test_export_sdp(
    headgate: Headgate, snapshot: Snapshot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    headgate("init", "games-embedded")
    declare_gold(tmp_path / "games.yaml", GAMES)
    printed = headgate("export", "sdp", "project")
    assert (printed.code, printed.err) == (0, "")
    snapshot.check(printed.out)
    assert (tmp_path / "project" / "transformations" / "headgate_gold.py").is_file()


def test_export_without_gold_has_a_hint(headgate: Headgate, tmp_path: Path) -> None:
    headgate("init", "games-embedded")
    declare_gold(tmp_path / "games.yaml", "")
    printed = headgate("export", "sdp", "project")
    assert printed.code == 2
    assert "hint: declare some in `gold` in the pipeline file" in printed.err


def test_next_steps_can_be_typed_here() -> None:
    install, go, run = steps_after("my gold", on_path=False, has_packages=False)
    assert install[0] == "pip install 'pyspark[pipelines]==4.2.0'"
    assert go[0] == "cd 'my gold'"
    folder = Path(sys.executable).parent
    assert run[0] == f"PATH={folder}:$PATH SPARK_CONF_DIR=conf spark-pipelines run"
