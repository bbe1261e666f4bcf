from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from headgate.errors import CheckpointError
from headgate.lake import run_lock as lock
from headgate.lake.run_lock import Holder, read_holder, run_lock


def hold(lake: Path, holder: Holder) -> None:
    path = lake / "_staged" / "games.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(vars(holder)))


def test_second_run_is_refused_and_the_first_one_named(tmp_path: Path) -> None:
    with run_lock(str(tmp_path), "games", "games"):
        with pytest.raises(CheckpointError, match="games is already running") as caught:
            run_lock(str(tmp_path), "games", "games").__enter__()
        assert caught.value.code == "pipeline-in-use"
        assert f"process {os.getpid()} of" in caught.value.message


def test_run_after_the_other_is_allowed(tmp_path: Path) -> None:
    for _ in range(2):
        with run_lock(str(tmp_path), "games", "games") as held:
            assert not held.after_failure
            holder = read_holder(str(tmp_path), "games")
            assert holder is not None
            assert holder.is_alive
    assert read_holder(str(tmp_path), "games") is None


def test_other_pipeline_has_a_lock_of_its_own(tmp_path: Path) -> None:
    lake = str(tmp_path)
    with run_lock(lake, "games", "games"), run_lock(lake, "shop", "shop"):
        assert read_holder(lake, "games") is not None


def test_run_that_failed_frees_the_lock_and_says_so(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="full"), run_lock(str(tmp_path), "games", "games"):
        raise OSError("the disk is full")
    with run_lock(str(tmp_path), "games", "games") as held:
        assert held.after_failure


def test_lock_of_a_killed_process_is_free_at_once(tmp_path: Path) -> None:
    code = (
        "import os, signal\n"
        "from headgate.lake.run_lock import run_lock\n"
        f"with run_lock({str(tmp_path)!r}, 'games', 'games'):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=False)
    assert read_holder(str(tmp_path), "games") is not None
    with run_lock(str(tmp_path), "games", "games") as held:
        assert held.after_failure


def test_process_of_another_host_holds_the_lock_until_it_stops_renewing(tmp_path: Path) -> None:
    elsewhere = replace(Holder.this_process(), host="elsewhere", pid=1)
    hold(tmp_path, elsewhere)
    with pytest.raises(CheckpointError, match=r"process 1 of .* on elsewhere"):
        run_lock(str(tmp_path), "games", "games").__enter__()
    hold(tmp_path, replace(elsewhere, renewed=time.time() - 60))
    with run_lock(str(tmp_path), "games", "games") as held:
        assert held.after_failure


def test_lock_is_renewed_but_never_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "_RENEWED_EVERY", 0.02)
    with run_lock(str(tmp_path), "games", "games") as held:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            now = read_holder(str(tmp_path), "games")
            if now is not None and now.renewed > held.holder.renewed:
                break
            time.sleep(0.01)
        else:
            pytest.fail("the lock was not renewed")
        other = replace(held.holder, host="elsewhere")
        hold(tmp_path, other)
        time.sleep(0.1)
    assert read_holder(str(tmp_path), "games") == other


def test_garbage_in_the_lock_is_no_holder(tmp_path: Path) -> None:
    with run_lock(str(tmp_path), "games", "games"):
        pass
    (tmp_path / "_staged" / "games.lock").write_text('{"pid": ')
    with run_lock(str(tmp_path), "games", "games"):
        assert read_holder(str(tmp_path), "games") is not None


def test_lock_from_the_future_is_free_unless_it_is_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is gone may have had a clock that was ahead."""
    monkeypatch.setattr(lock, "_EXPIRES_AFTER", 0.3)
    ahead = replace(Holder.this_process(), host="elsewhere", pid=1, renewed=time.time() + 7 * 86400)
    hold(tmp_path, ahead)
    with run_lock(str(tmp_path), "games", "games") as held:
        assert held.after_failure
    assert read_holder(str(tmp_path), "games") is None


def test_lock_from_the_future_that_is_renewed_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "_EXPIRES_AFTER", 5.0)
    ahead = replace(Holder.this_process(), host="elsewhere", pid=1, renewed=time.time() + 7 * 86400)
    hold(tmp_path, ahead)

    def renew(_: float) -> None:
        hold(tmp_path, replace(ahead, renewed=ahead.renewed + 5))

    monkeypatch.setattr("headgate.lake.run_lock.time.sleep", renew)
    with pytest.raises(CheckpointError, match="on elsewhere"):
        run_lock(str(tmp_path), "games", "games").__enter__()
