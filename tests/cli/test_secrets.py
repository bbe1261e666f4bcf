"""What commands print and write never has a secret that the pipeline file refers to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Headgate
from tests.inspect.gold_declared import GAMES, declare_gold

CANARY = "hunter2hunter2"
SETTINGS = """
spark:
  spark.hadoop.fs.s3a.secret.key: file:secret
  spark.hadoop.fs.azure.account.key.acme.dfs.core.windows.net: env:HEADGATE_TEST_SECRET
"""


def test_commands_show_no_secret(
    headgate: Headgate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_TEST_SECRET", CANARY)
    headgate("init", "games-embedded")
    file = tmp_path / "games.yaml"
    declare_gold(file, GAMES)
    file.write_text(file.read_text() + SETTINGS)
    (tmp_path / "secret").write_text(CANARY)
    for words in (
        ("check",),
        ("check", "--json"),
        ("plan",),
        ("plan", "--json"),
        ("status",),
        ("status", "--json"),
        ("graph",),
        ("graph", "--json"),
        ("export", "sdp", "project"),
    ):
        printed = headgate(*words)
        assert printed.code in (0, 1), printed.err
        assert CANARY not in printed.out + printed.err
    assert (tmp_path / "project").is_dir()
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.name != "secret":
            assert CANARY.encode() not in path.read_bytes(), path


def test_check_masks_the_line_of_a_literal(headgate: Headgate, tmp_path: Path) -> None:
    headgate("init", "games-embedded")
    file = tmp_path / "games.yaml"
    file.write_text(f"{file.read_text()}\nspark:\n  spark.hadoop.fs.s3a.access.key: {CANARY}\n")
    printed = headgate("check")
    assert printed.code == 1
    assert "spark.hadoop.fs.s3a.access.key: ***" in printed.out
    assert CANARY not in printed.out + printed.err


def test_check_masks_a_literal_beside_another_mistake(headgate: Headgate, tmp_path: Path) -> None:
    headgate("init", "games-embedded")
    file = tmp_path / "games.yaml"
    line = f"wrong: {{fs.azure.account.key.acme: {CANARY}, fs.azure.sas.box: {CANARY}}}"
    file.write_text(f"{file.read_text()}\n{line}\n")
    printed = headgate("check")
    assert printed.code == 1
    assert CANARY not in printed.out + printed.err
