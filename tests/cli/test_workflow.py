"""`headgate workflow` on this machine: what it prints, and how it exits."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Headgate
from tests.workflow.workflows import plan_in

WORKFLOW = """\
  schedule: daily
  retries: 1
  retry_wait: 10ms
  tasks:
    land: {command: "true"}
    check:
      command: [sh, -c, "test -e fixed || { echo 'error: not yet [bad-thing]'; exit 3; }"]
      after: land
    report: {command: "true", after: check}
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_HOME", str(tmp_path / "home"))
    plan_in(tmp_path, WORKFLOW)


def without_times(text: str) -> str:
    return re.sub(r"\d\d:\d\d:\d\d|\d{8}T\d{6}Z", "<time>", text)


def test_failed_run_says_what_to_do_and_is_repaired(headgate: Headgate, tmp_path: Path) -> None:
    failed = headgate("workflow", "run")
    assert failed.code == 1
    assert without_times(failed.out).splitlines()[:8] == [
        "<time>  land    running",
        "<time>  land    succeeded",
        "<time>  check   running",
        "<time>  check   retrying: not yet [bad-thing] (exit status 3)",
        "<time>  check   running, attempt 2",
        "<time>  check   failed, attempt 2: not yet [bad-thing] (exit status 3)",
        "<time>  report  skipped",
        "games failed in 0 s",
    ]
    assert "headgate workflow repair games.yaml  run the failed steps again" in failed.out
    assert "report  skipped" in headgate("workflow", "status").out
    (tmp_path / "fixed").touch()
    repaired = headgate("workflow", "repair", "--quiet")
    assert (repaired.code, repaired.out) == (0, "")
    again = headgate("workflow", "repair")
    assert (again.code, "nothing to repair" in again.err) == (1, True)


def test_json_has_the_steps_and_what_failed(headgate: Headgate) -> None:
    printed = json.loads(headgate("workflow", "run", "--json").out)
    assert not printed["ok"]
    assert [step["state"] for step in printed["data"]["steps"]] == [
        "succeeded",
        "failed",
        "skipped",
    ]
    status = json.loads(headgate("workflow", "status", "--json").out)
    assert status["data"]["runs"][0]["id"] == printed["data"]["id"]


def test_render_prints_or_writes_files(headgate: Headgate, tmp_path: Path) -> None:
    printed = headgate("workflow", "render", "--target", "systemd").out
    assert "OnCalendar=*-*-* 00:00:00 UTC" in printed
    wrote = headgate("workflow", "render", "--target", "systemd", "-o", tmp_path / "units").out
    assert "headgate-games.timer" in wrote
    assert (tmp_path / "units" / "headgate-games.timer").read_text() in printed


def test_wrong_words_are_usage_errors(headgate: Headgate) -> None:
    unknown = headgate("workflow", "install", "--target", "airflo")
    assert unknown.code == 2
    assert "did you mean `airflow`?" in unknown.err
    assert headgate("workflow", "install").code == 2
    assert "needs a scheduler" in headgate("workflow", "install", "--target", "local").err
    assert "has no step" in headgate("workflow", "run", "--only", "lnd").err
    assert "--no-wait" in headgate("workflow", "run", "--no-wait").err
    assert "cannot prompt" in headgate("workflow", "remove").err


def test_removal_deletes_the_record_of_runs(headgate: Headgate, tmp_path: Path) -> None:
    headgate("workflow", "run")
    removed = headgate("workflow", "remove", "--yes")
    assert removed.out.startswith("Removed journal ")
    assert not (tmp_path / "home" / "workflows").exists()
    assert "is not installed" in headgate("workflow", "remove", "--yes").out
