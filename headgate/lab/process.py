"""Processes that outlive the command that started them, and the ports they listen on."""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.errors import SetupError
from headgate.lab import require_lab

if TYPE_CHECKING:
    import psutil

HOST = "127.0.0.1"

_START_SLACK = 0.5
_STACK_FRAME = re.compile(r"\s+(at \S+\(|\.\.\. \d+ )")
_STOP_POLL = 0.02
_START_POLL = 0.05
# A process blocked on disk I/O does not exit before the I/O completes, not even when killed.
_LOG_LINES = 10
_KILL_TIMEOUT = 30.0


@dataclass(frozen=True)
class DetachedProcess:
    """A process id and the process's start time, because the system reuses ids."""

    name: str
    folder: Path
    pid: int
    created: float
    """Seconds after the system's start: setting the clock does not change them."""

    @property
    def log_file(self) -> Path:
        return self.folder / f"{self.name}.log"

    def is_alive(self) -> bool:
        return self._find() is not None

    def stop(self, timeout: float = 10.0) -> bool:
        """Terminate the process, kill it after `timeout`; return whether it was running."""
        process = self._find()
        if process is not None:
            import psutil

            with suppress(psutil.NoSuchProcess):
                process.terminate()
                if not self._exits_within(timeout):
                    process.kill()
                    self._exits_within(_KILL_TIMEOUT)
        _pid_file(self.folder, self.name).unlink(missing_ok=True)
        return process is not None

    def log_tail(self) -> str:
        """Return the last lines of the log, without Java's stack frames, for an error message."""
        if not self.log_file.is_file():
            return ""
        written = self.log_file.read_text("utf-8", "replace").splitlines()
        relevant = [line for line in written if line.strip() and not _STACK_FRAME.match(line)]
        return "\n".join(f"  {line}" for line in relevant[-_LOG_LINES:])

    def _exits_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self._find() is not None:
            if time.monotonic() > deadline:
                return False
            time.sleep(_STOP_POLL)
        return True

    def _find(self) -> psutil.Process | None:
        """Return the process; None if it has exited, even if its parent has not reaped it yet."""
        require_lab("psutil")
        import psutil

        try:
            process = psutil.Process(self.pid)
            if abs(_started(process) - self.created) > _START_SLACK:
                return None
            return None if process.status() == psutil.STATUS_ZOMBIE else process
        except psutil.NoSuchProcess:
            return None


@dataclass(frozen=True)
class LocalService:
    """A server of its own on a port of this machine."""

    folder: Path
    port: int
    pid: int

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"


@dataclass(frozen=True)
class ServiceFolder:
    """The folder of a service, which has its last port."""

    path: Path

    def port(self) -> int | None:
        """Return the port used last, if any."""
        try:
            return int((self.path / "port").read_text())
        except (OSError, ValueError):
            return None

    def write_port(self, port: int) -> None:
        (self.path / "port").write_text(f"{port}\n")


def start_detached(
    name: str, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
) -> DetachedProcess:
    """Start a command in its own session, with `<name>.log` and `<name>.pid` in the folder."""
    require_lab("psutil")
    import psutil

    folder.mkdir(parents=True, exist_ok=True)
    log_file = folder / f"{name}.log"
    if log_file.exists():
        os.replace(log_file, folder / f"{name}.previous.log")
    # Not subprocess.Popen: it warns about a child that is still running when it is collected.
    pid = os.posix_spawn(
        command[0],
        list(command),
        {**os.environ, **(environment or {})},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log_file), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    process = DetachedProcess(name, folder, pid, _started(psutil.Process(pid)))
    record = json.dumps({"pid": process.pid, "created": process.created})
    _pid_file(folder, name).write_text(record + "\n", "utf-8")
    return process


def _started(process: psutil.Process) -> float:
    import psutil

    return process.create_time() - psutil.boot_time()


def recorded_process(name: str, folder: Path) -> DetachedProcess | None:
    """Return the process last started under this name and not stopped, dead or alive."""
    try:
        record = json.loads(_pid_file(folder, name).read_text("utf-8"))
        return DetachedProcess(name, folder, int(record["pid"]), float(record["created"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _pid_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.pid"


def wait_until_ready(
    process: DetachedProcess, is_ready: Callable[[], bool], timeout: float = 120.0
) -> None:
    """Wait for `is_ready`; SetupError `service-failed` if the process exits or times out."""
    deadline = time.monotonic() + timeout
    while not is_ready():
        if not process.is_alive():
            raise _failed(process, "exited during startup")
        if time.monotonic() > deadline:
            raise _failed(process, f"did not respond within {timeout:.0f} s")
        time.sleep(_START_POLL)


def _failed(process: DetachedProcess, what: str) -> SetupError:
    tail = process.log_tail()
    lines = f"; last lines of its log:\n{tail}" if tail else ""
    return SetupError(
        "service-failed",
        f"the {process.name} {what}{lines}",
        hint=f"the full log is {process.log_file}",
    )


def choose_port(
    service: str, *, requested: int | None, previous: int | None = None, taken: Collection[int] = ()
) -> int:
    """Return the requested port, else the previous one if it is free, else any free port.

    SetupError `port-in-use` if the requested port is not free.
    """
    if requested is not None:
        if requested in taken or not is_free(requested):
            raise SetupError(
                "port-in-use",
                f"port {requested} for the {service} is in use{_used_by(requested)}",
                hint="choose another port, or omit the option to use any free port",
            )
        return requested
    if previous is not None and previous not in taken and is_free(previous):
        return previous
    while (port := _any_free_port()) in taken:
        pass
    return port


def is_free(port: int) -> bool:
    """Return whether a server could listen on the port."""
    with socket.socket() as probe:
        # Servers set this option too, so that connections in TIME_WAIT do not block the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def is_listening(port: int) -> bool:
    """Return whether a server accepts connections on the port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0


def _any_free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _used_by(port: int) -> str:
    require_lab("psutil")
    import psutil

    try:
        for connection in psutil.net_connections("tcp"):
            local_port = connection.laddr.port if connection.laddr else None
            if connection.status == psutil.CONN_LISTEN and local_port == port and connection.pid:
                return f" by {psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except psutil.Error:
        # Some systems show the connections of other users to root only.
        pass
    return ""
