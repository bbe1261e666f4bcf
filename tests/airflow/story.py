"""A workflow whose steps land, are retried, fail and are repaired: the same in every scheduler."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

import headgate
from headgate.workflow.target import State, Target, WorkflowRun
from tests.workflow.receivers import Mailbox, Webhook

ROOT = Path(headgate.__file__).parents[1]
NAME = "games-e2e"
_RECORDS = 60
_SECONDS = 120.0


def shell(script: str) -> list[str]:
    return ["sh", "-c", script]


def ignore(run: WorkflowRun) -> None:
    pass


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + _SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def workflow_in(folder: Path, hook: Webhook) -> dict[str, Any]:
    """Simulate records, and return the workflow that lands them."""
    command = [sys.executable, "-m", "headgate", "simulate", "games", "--to", "delta"]
    command += ["--tables", "2", "--versions", "1", "--records", str(_RECORDS)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    (folder / "hook").write_text(hook.url("/others\n"))
    return {
        "retries": 1,
        "retry_wait": "1s",
        "notify": {
            "failure": ["data-team@example.com", "env:GAMES_WEBHOOK"],
            "retry": "file:hook",
            "success": ["data-team@example.com", "file:hook"],
        },
        "tasks": {
            "land": "land",
            "flaky": {"command": shell("test -e tried || { touch tried; exit 3; }")},
            "publish": {
                "command": shell("echo error: no permit; test -e permit"),
                "after": ["land", "flaky"],
            },
            "report": {"command": shell("echo reported >> report"), "after": "publish"},
        },
    }


def headgate_in(folder: Path) -> str:
    """Return a command that runs this Headgate, and records that it has been called."""
    command = folder / "headgate"
    command.write_text(
        f'#!/bin/sh\necho "$@" >> {folder}/calls\n'
        f'PYTHONPATH={ROOT} exec {sys.executable} -m headgate "$@"\n'
    )
    command.chmod(0o755)
    return str(command)


def run_and_repair(target: Target, folder: Path, mail: Mailbox, hook: Webhook) -> WorkflowRun:
    """Run the workflow until it fails, fix the cause, and repair it."""
    seen: list[WorkflowRun] = []
    run = target.run(seen.append)
    states = {step.name: (step.state, step.attempts) for step in run.steps}
    assert (run.state, states) == (
        State.FAILED,
        {
            "land": (State.SUCCEEDED, 1),
            "flaky": (State.SUCCEEDED, 2),
            "publish": (State.FAILED, 2),
            "report": (State.SKIPPED, 0),
        },
    )
    assert len(seen) > 1
    (error,) = [step.error or "" for step in run.failed]
    assert error.startswith("no permit")

    wait_for(lambda: mail.messages and len(hook.received) >= 3)
    (message,) = mail.messages
    assert message["To"] == "data-team@example.com"
    assert message["Subject"] == f"[headgate] {NAME}: publish failed"
    body = message.get_body(("html", "plain"))
    text = body.get_content() if body else ""
    for fact in (f"Workflow: {NAME}", "Step:     publish", f"Run:      {run.id}", "2 of 2"):
        assert fact in text
    received = [(post["path"], post["event"], post["step"]) for post in hook.received]
    assert sorted(received) == [
        ("/failed", "failure", "publish"),
        ("/others", "retry", "flaky"),
        ("/others", "retry", "publish"),
    ]
    assert {post["run"] for post in hook.received} == {run.id}
    assert not (folder / "report").exists()
    assert rows(folder) == _RECORDS

    (folder / "permit").touch()
    repaired = target.repair(ignore)
    assert repaired.id == run.id
    attempts = {step.name: step.attempts for step in repaired.steps}
    assert (repaired.state, attempts) == (
        State.SUCCEEDED,
        {"land": 1, "flaky": 2, "publish": 3, "report": 1},
    )
    assert (folder / "report").read_text() == "reported\n"
    assert (folder / "calls").read_text().splitlines() == [f"run {folder}/games.yaml --once"]
    assert rows(folder) == _RECORDS
    wait_for(lambda: hook.received[-1]["event"] == "success")
    assert mail.messages[-1]["Subject"] == f"[headgate] {NAME}: succeeded"
    return run


def rows(folder: Path) -> int:
    tables = [DeltaTable(table) for table in (folder / "lake").glob("silver_*_events")]
    return sum(table.to_pyarrow_table().num_rows for table in tables)
