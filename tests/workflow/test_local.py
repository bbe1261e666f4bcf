"""A workflow on this machine: order, retries, time-outs, notices, repair, removal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headgate.errors import InvalidPipeline, UsageError, WorkflowError
from headgate.workflow.journal import Journal
from headgate.workflow.local import LocalTarget
from headgate.workflow.target import State, WorkflowRun
from tests.workflow.receivers import Mailbox, Webhook, mail_server, web_server
from tests.workflow.workflows import plan_in

FAILS_ONCE = '[sh, -c, "echo once >> tries; test $(wc -l < tries) -gt 1"]'


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    with mail_server() as mailbox:
        yield mailbox


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    with web_server() as webhook:
        yield webhook


def target_in(folder: Path, workflow: str, more: str = "") -> LocalTarget:
    return LocalTarget(plan_in(folder, workflow, more), Journal(folder / "journal"))


def states(run: WorkflowRun) -> dict[str, str]:
    return {step.name: step.state.value for step in run.steps}


def ignore(_: WorkflowRun) -> None:
    pass


def wait_for(condition: Callable[[], object]) -> None:
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_steps_run_after_those_that_they_need(tmp_path: Path) -> None:
    target = target_in(
        tmp_path,
        "  tasks:\n"
        "    last: {command: sh -c 'echo last >> order', after: [one, two]}\n"
        "    one: {command: sh -c 'echo one >> order'}\n"
        "    two: {command: sh -c 'echo two >> order', after: one}\n",
    )
    run = target.run(ignore)
    assert run.state is State.SUCCEEDED
    assert (tmp_path / "order").read_text().split() == ["one", "two", "last"]


def test_step_that_fails_once_is_retried_and_reported(
    tmp_path: Path, mailbox: Mailbox, webhook: Webhook
) -> None:
    target = target_in(
        tmp_path,
        "  retries: 2\n  retry_wait: 10ms\n"
        f"  notify: {{retry: team@example.com, success: '{webhook.url()}'}}\n"
        f"  email: {{smtp: '{mailbox.server}', sender: h@example.com, security: none}}\n"
        f"  tasks: {{land: {{command: {FAILS_ONCE}}}}}\n",
    )
    plan = target.plan
    seen: list[tuple[str, int]] = []
    run = target.run(lambda run: seen.append((run.steps[0].state, run.steps[0].attempts)))
    assert run.state is State.SUCCEEDED, target.journal.runs()
    assert list(dict.fromkeys(seen))[-4:] == [
        ("running", 1),
        ("retrying", 1),
        ("running", 2),
        ("succeeded", 2),
    ]
    (message,) = mailbox.messages
    assert message["Subject"] == "[headgate] games: land failed, will be retried"
    assert message["To"] == "team@example.com"
    assert "Attempt:  1 of 3" in message.get_content()
    (received,) = webhook.received
    assert received["event"] == "success"
    assert received["run"] == run.id
    assert plan.name == received["workflow"]


def test_failed_run_is_repaired_from_the_failed_step_on(tmp_path: Path, mailbox: Mailbox) -> None:
    target = target_in(
        tmp_path,
        "  retries: 1\n  retry_wait: 10ms\n"
        "  notify: {failure: [a@example.com, b@example.com]}\n"
        f"  email: {{smtp: '{mailbox.server}', sender: h@example.com, security: none}}\n"
        "  tasks:\n"
        "    land: {command: sh -c 'echo land >> order'}\n"
        "    check:\n"
        '      command: [sh, -c, "test -e fixed || { echo error: not yet; exit 3; }"]\n'
        "      after: land\n"
        "    report: {command: sh -c 'echo report >> order', after: check}\n",
    )
    run = target.run(ignore)
    assert run.state is State.FAILED
    assert states(run) == {"land": "succeeded", "check": "failed", "report": "skipped"}
    assert run.failed[0].error == "not yet (exit status 3)"
    (message,) = mailbox.messages
    assert message["Subject"] == "[headgate] games: check failed"
    assert "not yet" in message.get_content()
    assert "headgate workflow repair" in message.get_content()

    (tmp_path / "fixed").touch()
    repaired = target.repair(ignore)
    assert repaired.id == run.id
    assert states(repaired) == {"land": "succeeded", "check": "succeeded", "report": "succeeded"}
    assert (tmp_path / "order").read_text().split() == ["land", "report"]
    with pytest.raises(WorkflowError, match="nothing to repair"):
        target.repair(ignore)


def test_only_one_run_at_a_time(tmp_path: Path) -> None:
    target = target_in(tmp_path, "  tasks: {a: {command: 'true'}}\n")
    with target.journal.lock() as is_free:
        assert is_free
        with pytest.raises(WorkflowError) as caught:
            target.run(ignore)
    assert caught.value.code == "workflow-running"
    assert target.run(ignore).state is State.SUCCEEDED


def test_step_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    target = target_in(
        tmp_path, "  retries: 0\n  timeout: 200ms\n  tasks: {a: {command: sleep 60}}\n"
    )
    (step,) = target.run(ignore).steps
    assert (step.state, step.error) == (State.FAILED, "took longer than 200 milliseconds")


def test_command_that_does_not_exist_fails_with_a_reason(tmp_path: Path) -> None:
    target = target_in(tmp_path, "  retries: 0\n  tasks: {a: {command: no-such-command}}\n")
    (step,) = target.run(ignore).steps
    assert step.error == "cannot run no-such-command: No such file or directory"


def test_no_more_steps_run_side_by_side_than_declared(tmp_path: Path) -> None:
    tasks = ", ".join(f"s{number}: {{command: sleep 0.05}}" for number in range(6))
    target = target_in(tmp_path, f"  streams_per_cluster: 2\n  tasks: {{{tasks}}}\n")
    most = 0

    def count(run: WorkflowRun) -> None:
        nonlocal most
        most = max(most, sum(step.state is State.RUNNING for step in run.steps))

    assert target.run(count).state is State.SUCCEEDED
    assert most == 2


def test_run_whose_process_died_is_shown_as_failed_and_repaired(tmp_path: Path) -> None:
    target = target_in(
        tmp_path,
        "  tasks:\n    a: {command: [sh, -c, 'touch began; test -e go || sleep 60']}\n"
        "    b: {command: 'true', after: a}\n",
    )
    program = (
        "import sys; from pathlib import Path; from headgate.config import load_pipeline\n"
        "from headgate.workflow.journal import Journal\n"
        "from headgate.workflow.local import LocalTarget\n"
        "from headgate.workflow.plan import WorkflowPlan\n"
        "plan = WorkflowPlan.of(load_pipeline(sys.argv[1]))\n"
        "LocalTarget(plan, Journal(Path(sys.argv[2]))).run(lambda _: None)\n"
    )
    words = [sys.executable, "-c", program, target.plan.file, str(tmp_path / "journal")]
    process = subprocess.Popen(words)
    wait_for((tmp_path / "began").exists)
    wait_for(lambda: target.journal.runs())
    process.send_signal(signal.SIGKILL)
    process.wait()
    subprocess.run(["pkill", "-f", "test -e go"], check=False)
    (run,) = target.status().runs
    assert run.state is State.FAILED
    assert states(run) == {"a": "failed", "b": "skipped"}
    assert run.failed[0].error == "the process that ran it has died"
    (tmp_path / "go").touch()
    assert target.repair(ignore).state is State.SUCCEEDED


def test_stopped_run_stops_its_steps(tmp_path: Path) -> None:
    target = target_in(
        tmp_path,
        "  tasks:\n"
        "    a: {command: [sh, -c, \"trap 'touch stopped; exit 0' TERM; touch began; "
        'while :; do sleep 0.05; done"]}\n'
        "    b: {command: 'true', after: a}\n",
    )

    def interrupt() -> None:
        wait_for((tmp_path / "began").exists)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=interrupt)
    thread.start()
    run = target.run(ignore)
    thread.join()
    assert (tmp_path / "stopped").exists()
    assert run.state is State.CANCELED
    assert states(run)["b"] == "canceled"


def test_notice_that_cannot_be_sent_is_reported_and_does_not_fail_the_run(
    tmp_path: Path, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK", webhook.url("/s3cr3t"))
    webhook.statuses = [500, 500, 500]
    plan = plan_in(tmp_path, "  notify: {success: env:HOOK}\n  tasks: {a: {command: 'true'}}\n")
    reported: list[str] = []
    run = LocalTarget(plan, Journal(tmp_path / "journal"), reported.append).run(ignore)
    assert run.state is State.SUCCEEDED
    assert reported == ["webhook env:HOOK not called: HTTPError"]
    assert webhook.paths == ["/s3cr3t"] * 3


def test_addresses_need_a_mail_server(tmp_path: Path) -> None:
    target = target_in(
        tmp_path, "  notify: {failure: a@example.com}\n  tasks: {a: {command: 'true'}}\n"
    )
    with pytest.raises(InvalidPipeline, match=r"workflow\.email"):
        target.run(ignore)


def test_one_step_runs_in_the_foreground(tmp_path: Path) -> None:
    target = target_in(tmp_path, "  tasks: {a: {command: sh -c 'exit 7'}}\n")
    assert target.run_step("a") == 7
    with pytest.raises(UsageError, match="no step"):
        target.run_step("b")


def test_old_runs_are_deleted_and_removal_leaves_nothing(tmp_path: Path) -> None:
    target = target_in(tmp_path, "  tasks: {a: {command: 'true'}}\n")
    for _ in range(53):
        target.run(ignore)
    assert len(list((tmp_path / "journal").glob("*/run.json"))) <= 51
    target.remove()
    assert not (tmp_path / "journal").exists()
