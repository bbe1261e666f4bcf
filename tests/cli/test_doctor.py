from __future__ import annotations

import json
from pathlib import Path

import pytest

from headgate.inspect.doctor import Check, CheckState
from tests.cli.conftest import Headgate
from tests.cli.snapshot import Snapshot


def test_doctor_of_this_machine(headgate: Headgate) -> None:
    printed = headgate("doctor", "--json")
    names = {each["name"] for each in json.loads(printed.out)["data"]}
    assert {"Python", "Java", "jars for Spark", "disk", "local services", "port 9092"} <= names


def test_doctor_fails_when_a_check_does(headgate: Headgate) -> None:
    headgate("init", "games-embedded")
    printed = headgate("doctor", "games.yaml", "--json")
    assert printed.code == 1
    answer = json.loads(printed.out)
    assert answer["ok"] is False
    assert [each["name"] for each in answer["errors"]] == ["source table"]
    assert {each["name"] for each in answer["data"]} >= {"registry", "lake", "checkpoint"}


def test_doctor_ends_with_the_fixes(
    headgate: Headgate, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = [
        Check("Java", CheckState.OK, "17 at /usr/bin/java"),
        Check("disk", CheckState.WARN, "2.0 GB free at /lake", "make room"),
        Check("broker", CheckState.FAIL, "no broker answers at localhost:9092", "headgate up"),
    ]
    monkeypatch.setattr("headgate.inspect.doctor.check_all", lambda *_: checks)
    printed = headgate("doctor")
    assert printed.code == 1
    snapshot.check(printed.out)


def test_doctor_of_a_broken_file_points_to_check(headgate: Headgate, tmp_path: Path) -> None:
    (tmp_path / "games.yaml").write_text("name: games\n")
    printed = headgate("doctor", "games.yaml")
    assert printed.code == 1
    assert "pipeline file: headgate check games.yaml" in printed.out
