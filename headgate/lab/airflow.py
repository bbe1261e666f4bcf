"""Airflow, bound to localhost: its API and page, scheduler and DAG processor, on SQLite."""

from __future__ import annotations

import base64
import ctypes
import hashlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from configparser import RawConfigParser
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from headgate.config import Secret
from headgate.errors import SetupError
from headgate.jars.jars import headgate_home, hold_lock
from headgate.lab.process import (
    HOST,
    DetachedProcess,
    LocalService,
    ServiceFolder,
    start_detached,
)

NAME = "airflow"
USER = "admin"
_LOCK = Path(__file__).with_name("airflow.lock")
_PROGRAMS = (("api-server",), ("scheduler", "--skip-serve-logs"), ("dag-processor",))
_STOP_SECONDS = 20.0
_POLL = 0.2
_PR_SET_PDEATHSIG = 1
# Ignore proxy settings of the environment: the service is on localhost.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class LocalAirflow(LocalService):
    """A running Airflow. Its password is in a file that only this user can read."""

    @property
    def url(self) -> str:
        """The value of `workflow.airflow.url` in a pipeline file."""
        return f"http://{self.address}"

    @property
    def dags(self) -> Path:
        return AirflowFolder.of(self.folder).dags

    @property
    def password(self) -> Secret:
        return Secret("file", str(AirflowFolder.of(self.folder).password))


@dataclass(frozen=True)
class AirflowFolder(ServiceFolder):
    """DAGs, logs, database and settings of Airflow, its password and the last port."""

    @classmethod
    def of(cls, folder: Path) -> AirflowFolder:
        return cls(folder / NAME)

    @property
    def dags(self) -> Path:
        return self.path / "dags"

    @property
    def password(self) -> Path:
        return self.path / "password"

    def prepare(self, port: int) -> None:
        """Write the settings; create the password and the keys unless they exist."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.dags.mkdir(exist_ok=True)
        password = self._secret("password", secrets.token_urlsafe(24))
        _write_private(self.path / "passwords.json", json.dumps({USER: password}))
        settings = RawConfigParser()
        settings.read_dict(_escaped(self._settings(port)))
        with os.fdopen(_open_private(self.path / "airflow.cfg"), "w") as file:
            settings.write(file)
        self.write_port(port)

    def _settings(self, port: int) -> dict[str, dict[str, object]]:
        url = f"http://{HOST}:{port}"
        fernet_key = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
        return {
            "core": {
                "dags_folder": self.dags,
                "executor": "LocalExecutor",
                "parallelism": 16,
                "load_examples": False,
                "fernet_key": self._secret("fernet_key", fernet_key),
                "simple_auth_manager_users": f"{USER}:admin",
                "simple_auth_manager_passwords_file": self.path / "passwords.json",
                "execution_api_server_url": f"{url}/execution/",
            },
            "database": {"sql_alchemy_conn": f"sqlite:///{self.path}/airflow.db"},
            "logging": {"base_log_folder": self.path / "logs"},
            "api": {
                "host": HOST,
                "port": port,
                "base_url": url,
                "secret_key": self._secret("secret_key", secrets.token_hex(32)),
            },
            "api_auth": {"jwt_secret": self._secret("jwt_secret", secrets.token_hex(32))},
            "dag_processor": {"refresh_interval": 2, "parsing_processes": 1},
            "usage_data_collection": {"enabled": False},
        }

    def _secret(self, name: str, new: str) -> str:
        """Return a secret, which is written to a file at first."""
        file = self.path / name
        if not file.exists():
            _write_private(file, new)
        return file.read_text()


def _escaped(settings: Mapping[str, Mapping[str, object]]) -> dict[str, dict[str, str]]:
    """Return settings as text, in which Airflow takes `%` for a reference."""
    return {
        section: {key: str(value).replace("%", "%%") for key, value in values.items()}
        for section, values in settings.items()
    }


def _open_private(file: Path) -> int:
    return os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)


def _write_private(file: Path, text: str) -> None:
    with os.fdopen(_open_private(file), "w") as written:
        written.write(text)


def installed_airflow(report: Callable[[str], None]) -> Path:
    """Return the environment of Airflow, which is installed unless it exists.

    It has one of its own, because it brings many packages, and holds back versions of others.
    """
    environment = headgate_home() / "programs" / NAME
    ready = environment / "ready"
    digest = _digest()
    with hold_lock(environment.with_name(f"{NAME}.lock")):
        if not ready.exists() or ready.read_text() != digest:
            report("Installing Airflow (about 300 MB, a few minutes, once)")
            for command in _installation(environment):
                _run(command, "Airflow could not be installed")
            ready.write_text(digest)
    return environment


def _digest() -> str:
    return hashlib.sha256(_LOCK.read_bytes()).hexdigest()


def _installation(environment: Path) -> Sequence[Sequence[str]]:
    """Return the commands that install Airflow: with uv if there is one, else with pip."""
    python = str(environment / "bin" / "python")
    beside = Path(sys.executable).with_name("uv")
    uv = str(beside) if beside.exists() else shutil.which("uv")
    if uv is not None:
        create = [uv, "venv", "--clear", "--python", sys.executable, str(environment)]
        sync = [uv, "pip", "sync", "--require-hashes", "--python", python]
        return [create, [*sync, str(_LOCK)]]
    install = ["install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
    return [
        [sys.executable, "-m", "venv", "--clear", str(environment)],
        [python, "-m", "pip", *install, "-r", str(_LOCK)],
    ]


def _run(
    command: Sequence[str], failure: str, environment: Mapping[str, str] | None = None
) -> None:
    run = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if run.returncode != 0:
        lines = run.stdout.decode("utf-8", "replace").splitlines()[-5:]
        raise SetupError(
            "airflow-missing",
            f"{failure}:\n" + "\n".join(f"  {line}" for line in lines),
            hint="check the network, then try again",
        )


def start_airflow(folder: Path, port: int, report: Callable[[str], None]) -> DetachedProcess:
    """Start Airflow on its database, without waiting until it is ready."""
    home = AirflowFolder.of(folder)
    if "?" in str(home.path):
        raise SetupError(
            "service-failed",
            f"Airflow does not accept a question mark in the path of its data: {home.path}",
            hint="choose a folder without a question mark in its path",
        )
    installed_airflow(report)
    home.prepare(port)
    return start_detached(NAME, [sys.executable, "-m", __name__, str(folder)], folder)


def airflow_answers(port: int) -> bool:
    """Return whether the API, the scheduler and the DAG processor run."""
    try:
        with _DIRECT.open(f"http://{HOST}:{port}/api/v2/monitor/health", timeout=5.0) as response:
            health = json.load(response)
        parts = [health[part]["status"] for part in ("metadatabase", "scheduler", "dag_processor")]
    except (OSError, ValueError, KeyError, TypeError, urllib.error.URLError):
        return False
    return {*parts} == {"healthy"}


def serve(home: AirflowFolder) -> None:
    """Run Airflow's programs until this process is terminated, or one of them exits."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    airflow = str(installed_airflow(print) / "bin" / "airflow")
    environment = _environment(home)
    migrated = home.path / "migrated"
    if not migrated.exists() or migrated.read_text() != _digest():
        _run([airflow, "db", "migrate"], "Airflow's database cannot be created", environment)
        migrated.write_text(_digest())
    programs: list[subprocess.Popen[bytes]] = []
    try:
        for words in _PROGRAMS:
            command = [airflow, *words]
            programs.append(subprocess.Popen(command, env=environment, preexec_fn=_end_with_parent))
        while all(program.poll() is None for program in programs):
            time.sleep(_POLL)
        sys.exit("one of Airflow's programs has exited")
    finally:
        _stop()


def _environment(home: AirflowFolder) -> dict[str, str]:
    """Return the environment of Airflow's programs and its tasks.

    Connections and variables of Airflow may be declared in it; settings are in the file.
    """
    of_python = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "AIRFLOW_CONFIG"}
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in of_python and not name.startswith("AIRFLOW__")
    }
    direct = ",".join(filter(None, (os.environ.get("NO_PROXY"), HOST, "localhost")))
    return {**kept, "AIRFLOW_HOME": str(home.path), "NO_PROXY": direct, "no_proxy": direct}


def _end_with_parent() -> None:
    """Have the system terminate this process if its parent is killed, where it can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _stop() -> None:
    """Terminate the programs and their tasks, which they would wait for; kill what remains."""
    import psutil

    processes = psutil.Process().children(recursive=True)
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    _, remaining = psutil.wait_procs(processes, _STOP_SECONDS)
    for process in remaining:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def main() -> None:
    """Install Airflow for tests, or serve the folder that is given."""
    if len(sys.argv) > 1:
        serve(AirflowFolder.of(Path(sys.argv[1])))
        return
    try:
        installed_airflow(print)
    except SetupError as error:
        print(f"{error.message}\nTests with Airflow are left out")


if __name__ == "__main__":
    main()
