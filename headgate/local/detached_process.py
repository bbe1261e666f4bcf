"""A process that outlives the command that started it, and can be found again."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

_CLOCK_SLACK = 2.0
_FRAME = re.compile(r"\s+(at \S+\(|\.\.\. \d+ )")
_LOOK_EVERY = 0.02
# A killed process goes when the disk it waits for has answered.
_KILL_PATIENCE = 30.0


@dataclass(frozen=True)
class DetachedProcess:
    """A pid with the moment it began, because the system gives pids out again."""

    name: str
    folder: Path
    pid: int
    created: float

    @property
    def log_file(self) -> Path:
        return self.folder / f"{self.name}.log"

    def is_alive(self) -> bool:
        return self._find() is not None

    def stop(self, patience: float = 10.0) -> bool:
        """Ask it to end, end it after `patience` seconds; True if it was still running."""
        process = self._find()
        if process is not None:
            with suppress(psutil.NoSuchProcess):
                process.terminate()
                if not self._is_gone_within(patience):
                    process.kill()
                    self._is_gone_within(_KILL_PATIENCE)
        _pid_file(self.folder, self.name).unlink(missing_ok=True)
        return process is not None

    def log_tail(self, lines: int = 10) -> str:
        """The last lines it wrote, without Java's stack frames, for an error message."""
        if not self.log_file.is_file():
            return ""
        written = self.log_file.read_text("utf-8", "replace").splitlines()
        telling = [line for line in written if line.strip() and not _FRAME.match(line)]
        return "\n".join(f"  {line}" for line in telling[-lines:])

    def _is_gone_within(self, seconds: float) -> bool:
        """A process that has ended but was not reaped by its parent counts as gone."""
        deadline = time.monotonic() + seconds
        while self._find() is not None:
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_EVERY)
        return True

    def _find(self) -> psutil.Process | None:
        try:
            process = psutil.Process(self.pid)
            # The system keeps the start in ticks since boot; a clock that was set moves it a bit.
            if abs(process.create_time() - self.created) > _CLOCK_SLACK:
                return None
            return None if process.status() == psutil.STATUS_ZOMBIE else process
        except psutil.NoSuchProcess:
            return None


def start_detached(name: str, command: Sequence[str], folder: Path) -> DetachedProcess:
    """Start a command in a session of its own, with `<name>.log` and `<name>.pid` in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    log_file = folder / f"{name}.log"
    if log_file.exists():
        os.replace(log_file, folder / f"{name}.previous.log")
    # Not subprocess.Popen: it warns about a child that is meant to be still running.
    pid = os.posix_spawn(
        command[0],
        list(command),
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log_file), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    process = DetachedProcess(name, folder, pid, psutil.Process(pid).create_time())
    record = json.dumps({"pid": process.pid, "created": process.created})
    _pid_file(folder, name).write_text(record + "\n", "utf-8")
    return process


def recorded_process(name: str, folder: Path) -> DetachedProcess | None:
    """The process that was last started under this name and not stopped, dead or alive."""
    try:
        record = json.loads(_pid_file(folder, name).read_text("utf-8"))
        return DetachedProcess(name, folder, int(record["pid"]), float(record["created"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _pid_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.pid"
