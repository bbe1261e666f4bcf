"""A standalone Spark cluster on this machine: a master and workers as processes of their own.

Workers have their own folder, home and, if this is root and the other may read Spark, user: what
they share with the driver is what machines of a real cluster would.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

from headgate.cluster.settings import same_python
from headgate.jars.jars import find_ivy
from headgate.jars.java import find_java
from headgate.lab.process import (
    HOST,
    DetachedProcess,
    choose_port,
    is_listening,
    start_detached,
    wait_until_ready,
)

OTHER_USER = "nobody"
_CLASSES = "org.apache.spark.deploy"


@dataclass(frozen=True)
class Cluster:
    """A running master and its workers."""

    folder: Path
    port: int
    master: DetachedProcess
    workers: list[DetachedProcess] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"spark://{HOST}:{self.port}"

    def work_of(self, worker: int) -> Path:
        """Return the folder of a worker, which has those of its executors."""
        return self.folder / f"worker-{worker}"

    def add_worker(self, memory: str = "1g") -> DetachedProcess:
        """Start a worker with one core, at an address of its own as if on its own machine."""
        number = len(self.workers)
        work = self.work_of(number)
        work.mkdir(parents=True)
        java = [f"{_CLASSES}.worker.Worker", "--host", f"127.0.0.{number + 1}"]
        java += ["--cores", "1", "--memory", memory, "--work-dir", str(work), "--webui-port", "0"]
        command = _on_its_own(_as_other_user(_spark_class(*java, self.url), work), work)
        worker = start_detached(f"worker-{number}", command, self.folder)
        self.workers.append(worker)
        return worker

    def stop(self) -> None:
        for process in (*self.workers, self.master):
            process.stop()


@contextmanager
def local_cluster(folder: Path, workers: int, memory: str = "1g") -> Iterator[Cluster]:
    """Run a master and workers; `folder` must be one that other users can enter."""
    port = choose_port("master", requested=None)
    java = [f"{_CLASSES}.master.Master", "--host", HOST, "--port", str(port)]
    command = _on_its_own(_spark_class(*java, "--webui-port", "0"), folder)
    master = start_detached("master", command, folder)
    cluster = Cluster(folder, port, master)
    try:
        wait_until_ready(master, lambda: is_listening(port))
        for _ in range(workers):
            cluster.add_worker(memory)
        for worker in cluster.workers:
            wait_until_ready(worker, partial(_is_registered, worker))
        yield cluster
    finally:
        cluster.stop()


def _spark_class(*arguments: str) -> list[str]:
    return [str(_spark_home() / "bin" / "spark-class"), *arguments]


def _spark_home() -> Path:
    return find_ivy().resolve().parent.parent


def _on_its_own(command: Sequence[str], folder: Path) -> list[str]:
    """Run a command in a folder and with an environment of its own."""
    environment = {
        "HOME": str(folder),
        "PATH": _programs(),
        "SPARK_DAEMON_MEMORY": "512m",
        "SPARK_HOME": str(_spark_home()),
    }
    given = [f"{name}={value}" for name, value in environment.items()]
    return ["/usr/bin/env", "-i", "-C", str(folder), *given, *command]


def _is_registered(worker: DetachedProcess) -> bool:
    return "Successfully registered with master" in worker.log_file.read_text("utf-8", "replace")


@cache
def has_other_user() -> bool:
    """Whether workers have another user: this one may switch, and the other may use Spark."""
    needed = (
        ["/usr/bin/test", "-x", str(_spark_home() / "bin" / "spark-class")],
        ["/usr/bin/test", "-r", str(_spark_home() / "jars")],
        ["/usr/bin/env", "-i", f"PATH={_programs()}", same_python(), "-c", ""],
    )
    switch = _switch()
    return bool(switch) and all(
        subprocess.run([*switch, *command], check=False, stderr=subprocess.DEVNULL).returncode == 0
        for command in needed
    )


def _programs() -> str:
    # This Python last: another user may not be allowed to run it.
    folders = (str(find_java().path.resolve().parent), os.defpath, f"{sys.base_prefix}/bin")
    return os.pathsep.join(folders)


def _as_other_user(command: Sequence[str], folder: Path) -> list[str]:
    """Run a command as another user, if there can be one."""
    if not has_other_user():
        return list(command)
    user = pwd.getpwnam(OTHER_USER)
    os.chown(folder, user.pw_uid, user.pw_gid)
    return [*_switch(), *command]


def _switch() -> list[str]:
    """Return the command that runs another as the other user; empty if this one may not switch."""
    program = shutil.which("setpriv")
    if os.geteuid() != 0 or program is None:
        return []
    user = pwd.getpwnam(OTHER_USER)
    return [program, f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
