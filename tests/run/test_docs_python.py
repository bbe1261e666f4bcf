"""Python of the documentation, in a Spark session that runs already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headgate.cli.main import run_command
from tests.run.conftest import places
from tests.test_docs import ROOT, block


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _run(script: str) -> dict[str, Any]:
    """Run a script, and return its variables."""
    variables: dict[str, Any] = {}
    exec(script, variables)
    return variables


def test_readme_python_runs(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    simulate = "simulate games --tables 3 --versions 2 --records 300 --to delta"
    assert run_command(simulate.split()) == 0
    _run(block("python", "headgate.Pipeline("))
    assert "silver_chess" in capsys.readouterr().out
    assert places(str(tmp_path / "lake")).total() == 300


def test_python_guide_runs(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "guides" / "python.md").read_text()
    headgate, *simulate = block("sh", "simulate", page).split()
    assert headgate == "headgate"
    assert run_command(simulate) == 0
    script = _run(block("python", "headgate.Pipeline(", page))
    printed = capsys.readouterr().out
    assert "games done: 300 records in " in printed
    assert "gold_chess_rows" in printed
    assert "CreateTable" in printed
    assert "3 of them new" in printed
    rows = script["pipeline"].read("silver_chess", columns=["user_name"], spark=spark)
    assert (rows.columns, rows.count()) == (["user_name"], script["players"].num_rows)
