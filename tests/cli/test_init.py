from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from headgate.config import Delta, Files, Kafka, load_pipeline
from headgate.config.model import fields_by_key
from headgate.config.pipeline import CHANGE_KEYS, RECORD_KEYS
from headgate.examples import EXAMPLES, Example
from tests.cli.conftest import Headgate
from tests.cli.snapshot import Snapshot

_NAMES = [each.name for each in EXAMPLES]


@pytest.mark.parametrize("example", EXAMPLES, ids=_NAMES)
def test_init_writes_a_pipeline_that_loads(
    headgate: Headgate, tmp_path: Path, example: Example
) -> None:
    assert headgate("init", example.name).code == 0
    pipeline = load_pipeline(tmp_path / f"{example.pipeline}.yaml")
    assert pipeline.name == example.pipeline
    assert isinstance(pipeline.source, Kafka) == example.needs_services
    assert isinstance(pipeline.source, Files) == (example.name == "shop")


@pytest.mark.parametrize("name", _NAMES)
def test_init_ends_with_the_next_command(headgate: Headgate, snapshot: Snapshot, name: str) -> None:
    printed = headgate("init", name)
    assert printed.err == ""
    snapshot.check(printed.out)


def test_init_without_a_terminal_writes_games(headgate: Headgate, tmp_path: Path) -> None:
    assert headgate("init").code == 0
    assert isinstance(load_pipeline(tmp_path / "games.yaml").source, Kafka)


@dataclass
class _Terminal:
    """Standard input of a person."""

    answer: str
    asked: int = 0

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        self.asked += 1
        return f"{self.answer}\n"


@pytest.mark.parametrize("answer", ["2", "games-embedded"])
def test_init_on_a_terminal_asks_once(
    headgate: Headgate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    terminal = _Terminal(answer)
    monkeypatch.setattr("sys.stdin", terminal)
    assert headgate("init").code == 0
    assert terminal.asked == 1
    assert isinstance(load_pipeline(tmp_path / "games.yaml").source, Delta)


def test_init_leaves_a_file_as_it_is(headgate: Headgate, tmp_path: Path) -> None:
    (tmp_path / "games.yaml").write_text("mine")
    printed = headgate("init", "games")
    assert printed.code == 2
    assert "[already-exists]" in printed.err
    assert (tmp_path / "games.yaml").read_text() == "mine"


def test_init_makes_the_folder(headgate: Headgate, tmp_path: Path) -> None:
    printed = headgate("init", "games-embedded", "new/place")
    assert "headgate run new/place/games.yaml --once" in printed.out
    assert (tmp_path / "new/place/games.yaml").is_file()


def test_init_beside_another_folder_lands_what_is_simulated_there(headgate: Headgate) -> None:
    printed = headgate("init", "shop", "new/place")
    assert "headgate simulate shop --to new/place/landing" in printed.out


def test_init_of_an_unknown_example_suggests_one(headgate: Headgate) -> None:
    printed = headgate("init", "game")
    assert printed.code == 2
    assert "hint: did you mean `games`?" in printed.err


@pytest.mark.parametrize("example", EXAMPLES, ids=_NAMES)
def test_init_shows_every_optional_key_with_its_default(
    headgate: Headgate, tmp_path: Path, example: Example
) -> None:
    headgate("init", example.name)
    path = tmp_path / f"{example.pipeline}.yaml"
    text = path.read_text()
    shown = yaml.safe_load("\n".join(re.findall(r"^# (\w+: [^{\n].*?)(?:  .*)?$", text, re.M)))
    keys = {*yaml.safe_load(text), *shown, *re.findall(r"^# (\w+): {}", text, re.M)}
    as_it_is = load_pipeline(path)
    foreign = RECORD_KEYS if as_it_is.lands_changes else CHANGE_KEYS
    assert set(fields_by_key(type(as_it_is))) - {"merge", *foreign} == keys
    defaults = {key: value for key, value in shown.items() if key != "bronze"}
    path.write_text(text + yaml.safe_dump(defaults))
    assert load_pipeline(path) == as_it_is


def test_init_uses_the_addresses_that_it_is_given() -> None:
    text = EXAMPLES[0].text("broker:19092", "http://registry:18081/apis/ccompat/v7")
    assert 'servers: "broker:19092"' in text
    assert "registry: http://registry:18081/apis/ccompat/v7" in text
    assert "localhost" not in text
