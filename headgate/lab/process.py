"""A process that outlives the command that started it, and can be found again."""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from headgate.errors import SetupError

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


_PAUSE = 0.05


def wait_until_answering(
    process: DetachedProcess, answers: Callable[[], bool], patience: float = 120.0
) -> None:
    """Return when `answers` says so; SetupError `service-failed` if it dies or takes too long."""
    give_up = time.monotonic() + patience
    while not answers():
        if not process.is_alive():
            raise _failed(process, "ended instead of starting")
        if time.monotonic() > give_up:
            raise _failed(process, f"did not answer within {patience:.0f} s")
        time.sleep(_PAUSE)


def _failed(process: DetachedProcess, what: str) -> SetupError:
    tail = process.log_tail()
    said = f"; its last lines:\n{tail}" if tail else ""
    return SetupError(
        "service-failed",
        f"the {process.name} {what}{said}",
        hint=f"the whole log is {process.log_file}",
    )


HOST = "127.0.0.1"


def choose_port(
    purpose: str, *, asked: int | None, last: int | None = None, taken: Collection[int] = ()
) -> int:
    """The port asked for if it is free, else the one of last time if it is free, else any."""
    if asked is not None:
        if asked in taken or not is_free(asked):
            raise SetupError(
                "port-in-use",
                f"port {asked} for the {purpose} is taken{_by_whom(asked)}",
                hint="choose another port, or none: then a free one is taken",
            )
        return asked
    if last is not None and last not in taken and is_free(last):
        return last
    while (port := _any_free_port()) in taken:
        pass
    return port


def is_free(port: int) -> bool:
    """Whether a server could listen on the port."""
    with socket.socket() as probe:
        # Servers set it too: connections that are still closing do not keep a port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def is_answering(port: int) -> bool:
    """Whether something listens on the port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0


def _any_free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _by_whom(port: int) -> str:
    try:
        for connection in psutil.net_connections("tcp"):
            listens_on = connection.laddr.port if connection.laddr else None
            if connection.status == psutil.CONN_LISTEN and listens_on == port and connection.pid:
                return f" by {psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except psutil.Error:
        # Some systems show other users' connections to root only.
        pass
    return ""
