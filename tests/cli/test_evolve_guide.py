"""docs/guides/evolve.md shows contracts that load, and a plan as it is printed."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from tests.cli.conftest import Headgate

_ROOT = Path(__file__).parents[2]
_GUIDE = (_ROOT / "docs" / "guides" / "evolve.md").read_text("utf-8")


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", _GUIDE, re.DOTALL)


def test_contracts_in_the_guide_are_valid(headgate: Headgate, tmp_path: Path) -> None:
    headgate("init", "games-embedded")
    pipeline = (tmp_path / "games.yaml").read_text()
    contracts = _blocks("yaml")
    assert len(contracts) == 3
    for contract in contracts:
        assert list(yaml.safe_load(contract)) == ["contract"]
        (tmp_path / "games.yaml").write_text(f"{pipeline}\n{contract}")
        printed = headgate("check", "games.yaml")
        assert (printed.code, printed.err) == (0, "")


def test_plan_in_the_guide_is_what_is_printed() -> None:
    (shown,) = _blocks("text")
    snapshot = (_ROOT / "tests" / "cli" / "snapshots" / "plan.txt").read_text("utf-8")
    assert shown == "$ headgate plan games.yaml\n" + snapshot.split("\n\nNext:")[0] + "\n"
