from __future__ import annotations

from pathlib import Path

import pytest

from headgate.errors import SetupError
from headgate.lab import require_lab
from tests.lab.without_extra import headgate_without_extra


@pytest.fixture(autouse=True)
def _in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_installed_packages_are_enough() -> None:
    require_lab("psutil", "pymysql", "pymysqlreplication", "fastavro")


def test_missing_packages_are_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.lab.find_spec", lambda name: None)
    with pytest.raises(SetupError, match="this needs psutil, mysql-replication") as caught:
        require_lab("psutil", "pymysqlreplication")
    assert caught.value.code == "extra-missing"
    assert caught.value.hint == 'pip install "headgate[lab]"'


@pytest.mark.parametrize(
    ("command", "package"),
    [
        ("up", "psutil"),
        ("up --database", "pymysql"),
        ("simulate shop --changes 10 --clean", "fastavro"),
        ("simulate shop --changes 10 --format json --database", "mysql-replication"),
        ("simulate pizza --history 1h --to delta --clean", "fastavro"),
    ],
)
def test_command_that_needs_the_extra_says_so_first(
    tmp_path: Path, command: str, package: str
) -> None:
    run = headgate_without_extra(*command.split())
    assert (run.returncode, run.stdout) == (1, "")
    assert package in run.stderr
    assert "[extra-missing]" in run.stderr
    assert 'hint: pip install "headgate[lab]"' in run.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command",
    [
        "init games",
        "down",
        "simulate games --to delta --tables 2 --versions 1 --records 10",
        "simulate shop --changes 10 --format json",
    ],
)
def test_command_that_does_not_need_the_extra_runs_without(command: str) -> None:
    run = headgate_without_extra(*command.split())
    assert (run.returncode, run.stderr) == (0, "")


def test_doctor_does_not_need_the_extra() -> None:
    run = headgate_without_extra("doctor")
    assert "extra-missing" not in run.stdout + run.stderr
    assert "local services" in run.stdout
