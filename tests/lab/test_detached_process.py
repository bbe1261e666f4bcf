from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from headgate.errors import SetupError
from headgate.lab.process import (
    DetachedProcess,
    recorded_process,
    start_detached,
    wait_until_ready,
)

Start = Callable[[str], DetachedProcess]
UNTIL_STOPPED = "print('ready', flush=True); signal.pause()"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[DetachedProcess] = []

    def start_python(code: str) -> DetachedProcess:
        command = [sys.executable, "-c", f"import signal, sys; {code}"]
        started.append(start_detached("sleeper", command, tmp_path))
        return started[-1]

    yield start_python
    for process in started:
        process.stop(timeout=0)


def wait_for_output(process: DetachedProcess) -> None:
    wait_until_ready(process, lambda: "ready" in process.log_tail())


def test_process_is_found_again_and_stopped(start: Start, tmp_path: Path) -> None:
    process = start(UNTIL_STOPPED)
    wait_for_output(process)
    assert recorded_process("sleeper", tmp_path) == process
    assert process.is_alive()
    assert process.stop()
    assert not process.is_alive()
    assert recorded_process("sleeper", tmp_path) is None
    assert not process.stop()


def test_process_has_a_session_of_its_own(start: Start) -> None:
    process = start(UNTIL_STOPPED)
    assert os.getsid(process.pid) == process.pid != os.getsid(0)


def test_process_that_ignores_the_request_is_killed(start: Start) -> None:
    process = start(f"signal.signal(signal.SIGTERM, signal.SIG_IGN); {UNTIL_STOPPED}")
    wait_for_output(process)
    assert process.stop(timeout=0.1)
    assert not process.is_alive()


def test_pid_given_to_another_process_is_not_ours(start: Start) -> None:
    process = start(UNTIL_STOPPED)
    earlier = replace(process, created=process.created - 3600)
    assert not earlier.is_alive()
    assert not earlier.stop()
    assert psutil.pid_exists(process.pid)
    assert process.is_alive()


def test_process_is_found_after_the_clock_was_set(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = start(UNTIL_STOPPED)
    create_time, boot_time = psutil.Process.create_time, psutil.boot_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: create_time(self) + 60)
    monkeypatch.setattr(psutil, "boot_time", lambda: boot_time() + 60)
    assert process.is_alive()


def test_record_that_cannot_be_read_is_no_record(tmp_path: Path) -> None:
    (tmp_path / "sleeper.pid").write_text("{")
    assert recorded_process("sleeper", tmp_path) is None


def test_earlier_log_is_kept(start: Start, tmp_path: Path) -> None:
    wait_for_output(start(UNTIL_STOPPED))
    start("print('second')")
    assert (tmp_path / "sleeper.previous.log").read_text() == "ready\n"


def test_log_tail_leaves_stack_frames_out(tmp_path: Path) -> None:
    lines = ["ERROR no", "\tat org.Example.run(Example.java:1)", "\t... 3 more", "", "Caused by: x"]
    (tmp_path / "sleeper.log").write_text("\n".join(lines))
    assert DetachedProcess("sleeper", tmp_path, 0, 0.0).log_tail() == "  ERROR no\n  Caused by: x"


def test_process_that_dies_says_why(start: Start) -> None:
    process = start("sys.exit('the disk is full')")
    with pytest.raises(SetupError, match="exited during startup") as caught:
        wait_until_ready(process, lambda: False)
    assert caught.value.code == "service-failed"
    assert "the disk is full" in caught.value.message
    assert str(process.log_file) in (caught.value.hint or "")


def test_process_that_never_answers_is_given_up(start: Start) -> None:
    with pytest.raises(SetupError, match="did not respond") as caught:
        wait_until_ready(start(UNTIL_STOPPED), lambda: False, timeout=0)
    assert caught.value.code == "service-failed"
