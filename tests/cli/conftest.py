"""Commands run in this process, and what they print kept as golden text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from headgate.cli.main import run_command
from tests.cli.snapshot import Snapshot
from tests.inspect.small_lake import SmallLake, make_small_lake


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "spark: starts a Spark of its own, in a process of its own")


@dataclass(frozen=True)
class Printed:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


Headgate = Callable[..., Printed]


@pytest.fixture
def headgate(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Headgate:
    """Runs a command in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str | Path) -> Printed:
        code = run_command([str(word) for word in words])
        printed = capsys.readouterr()
        return Printed(code, printed.out, printed.err)

    return run


@pytest.fixture
def snapshot(request: pytest.FixtureRequest, tmp_path: Path) -> Snapshot:
    return Snapshot(request.node.name.removeprefix("test_"), {str(tmp_path): "<folder>"})


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> SmallLake:
    """Landed once; tests only look at it."""
    return make_small_lake(tmp_path_factory.mktemp("small_lake"))
