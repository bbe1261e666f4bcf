"""A real Airflow runs workflows: scheduler, DAG processor, API, and a mail server for notices."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from headgate.errors import SetupError, WorkflowError
from headgate.lab.airflow import installed_airflow
from headgate.lab.process import HOST
from headgate.lab.services import down, find_airflow
from headgate.workflow.airflow.api import AirflowApi
from headgate.workflow.airflow.dag import dag_id, render_dag
from headgate.workflow.airflow.target import AirflowTarget
from headgate.workflow.journal import Journal
from headgate.workflow.local import LocalTarget
from headgate.workflow.target import State
from tests.airflow.games import HOSTILE_FOLDER, HOSTILE_WORDS, plan_of, plans
from tests.airflow.story import (
    NAME,
    ROOT,
    headgate_in,
    ignore,
    run_and_repair,
    shell,
    wait_for,
    workflow_in,
)
from tests.workflow.receivers import Mailbox, Webhook, mail_server, web_server

_SECONDS = 120.0


@dataclass(frozen=True)
class Running:
    """An Airflow, what `headgate up` printed when it started it, and who receives its notices."""

    folder: Path
    printed: str
    mail: Mailbox
    hook: Webhook

    @property
    def settings(self) -> dict[str, Any]:
        """What `headgate up` says to put under `workflow.airflow`."""
        block = self.printed.partition("For the pipeline file:\n\n")[2].partition("\n\n")[0]
        settings: dict[str, Any] = yaml.safe_load(block)["workflow"]["airflow"]
        return settings


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    try:
        installed_airflow(print)
    except SetupError as error:
        pytest.skip(error.message)
    folder = tmp_path_factory.mktemp("airflow") / "services"
    with mail_server() as mail, web_server() as hook:
        plain = {"disable_ssl": True, "disable_tls": True, "from_email": "airflow@example.com"}
        smtp = {"conn_type": "smtp", "host": HOST, "port": mail.port, "extra": plain}
        environment = {
            "AIRFLOW_CONN_SMTP_DEFAULT": json.dumps(smtp),
            "GAMES_WEBHOOK": hook.url("/failed"),
            "AIRFLOW__API__PORT": "1",
            "http_proxy": "http://127.0.0.1:1",
        }
        try:
            yield Running(folder, _headgate_up(folder, environment), mail, hook)
        finally:
            down(folder)


def _headgate_up(folder: Path, environment: Mapping[str, str]) -> str:
    command = [sys.executable, "-m", "headgate", "up", "--airflow", "--folder", str(folder)]
    started = subprocess.run(
        command, env={**os.environ, **environment}, cwd=ROOT, capture_output=True, text=True
    )
    assert (started.returncode, started.stderr) == (0, "")
    return started.stdout


def test_up_starts_it_once_for_this_user_only(airflow: Running) -> None:
    running = find_airflow(airflow.folder)
    assert running is not None
    assert f"Up: airflow at {running.address}" in airflow.printed
    assert f"Already up: airflow at {running.address}" in _headgate_up(airflow.folder, {})
    secret = Path(airflow.settings["password"].removeprefix("file:"))
    assert secret.read_text() not in airflow.printed
    assert stat.S_IMODE(secret.parent.stat().st_mode) == 0o700
    programs = psutil.Process(running.pid).children(recursive=True)
    listening = [
        connection.laddr
        for program in programs
        for connection in program.net_connections()
        if connection.status == psutil.CONN_LISTEN
    ]
    assert {(address.ip, address.port) for address in listening} == {(HOST, running.port)}


def test_golden_dags_can_be_imported(airflow: Running, tmp_path: Path) -> None:
    for name, plan in plans(tmp_path / "plans").items():
        dags = tmp_path / "dags" / name
        dags.mkdir(parents=True)
        (dags / f"{dag_id(plan)}.py").write_text(render_dag(plan))
    script = f"""
import json, pathlib
from airflow.dag_processing.dagbag import DagBag
for folder in pathlib.Path({str(tmp_path / "dags")!r}).iterdir():
    bag = DagBag(folder, bundle_path=folder)
    tasks = [sorted(dag.task_ids) for dag in bag.dags.values()]
    print(json.dumps({{"name": folder.name, "errors": bag.import_errors, "tasks": tasks}}))
"""
    environment = {**os.environ, "AIRFLOW_HOME": str(airflow.folder / "airflow"), "PYTHONPATH": ""}
    python = installed_airflow(print) / "bin" / "python"
    command = [str(python), "-c", script]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    found = [json.loads(line) for line in run.stdout.splitlines() if line.startswith('{"name"')]
    assert {one["name"]: one["errors"] for one in found} == {name: {} for name in plans(tmp_path)}
    assert {one["name"]: one["tasks"] for one in found} == {
        name: [sorted(plan.by_name)] for name, plan in plans(tmp_path).items()
    }


def test_workflow_runs_fails_and_is_repaired(airflow: Running, tmp_path: Path) -> None:
    settings = {"airflow": {**airflow.settings, "headgate": headgate_in(tmp_path)}}
    workflow = workflow_in(tmp_path, airflow.hook) | settings
    plan = plan_of(tmp_path, workflow, more={"name": NAME})
    target = AirflowTarget.of(plan)
    with pytest.raises(WorkflowError, match="is not installed"):
        target.run(ignore)

    assert [change.action for change in target.install()] == ["created"]
    assert str(airflow.hook.port) not in "".join(target.render().values())
    assert [change.action for change in target.install()] == ["unchanged"]
    with pytest.raises(WorkflowError, match="has not run yet"):
        target.repair(ignore)
    run = run_and_repair(target, tmp_path, airflow.mail, airflow.hook)
    assert airflow.mail.messages[0]["From"] == "airflow@example.com"
    assert run.url is not None
    assert run.url.startswith(airflow.settings["url"])
    with pytest.raises(WorkflowError, match="nothing to repair"):
        target.repair(ignore)

    status = target.status()
    assert (status.is_installed, status.is_current, status.is_paused) == (True, True, False)
    assert [one.id for one in status.runs] == [run.id]
    changed = AirflowTarget.of(
        plan_of(tmp_path, {**workflow, "retries": 2}, more={"name": plan.name})
    )
    assert not changed.status().is_current

    assert [change.what for change in target.remove()] == ["file", "DAG"]
    assert target.remove() == []
    status = target.status()
    assert (status.is_installed, status.runs) == (False, ())
    assert not [*Path(airflow.settings["dags"]).iterdir()]


def test_same_workflow_runs_without_airflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mail_server() as mail, web_server() as hook:
        monkeypatch.setenv("GAMES_WEBHOOK", hook.url("/failed"))
        email = {"smtp": mail.server, "sender": "headgate@example.com", "security": "none"}
        workflow = workflow_in(tmp_path, hook) | {"email": email}
        plan = plan_of(tmp_path, workflow, more={"name": NAME})
        journal = Journal(tmp_path / "journal")
        target = LocalTarget(plan, journal, headgate=headgate_in(tmp_path))
        run = run_and_repair(target, tmp_path, mail, hook)
    assert [one.id for one in target.status().runs] == [run.id]
    target.remove()
    assert not journal.folder.exists()


def test_hostile_words_and_folder_reach_the_command_as_they_are(
    airflow: Running, tmp_path: Path
) -> None:
    # Pipelines have no line breaks in their paths.
    folder = tmp_path / HOSTILE_FOLDER.replace("\n", "")
    program = "import json, os, sys; json.dump([os.getcwd(), *sys.argv[1:]], open('out', 'w'))"
    workflow = {
        "retries": 0,
        "tasks": {"DAG": {"command": [sys.executable, "-c", program, *HOSTILE_WORDS, "a.sh"]}},
        "airflow": airflow.settings,
    }
    target = AirflowTarget.of(plan_of(folder, workflow))
    target.install()
    assert target.run(ignore).state is State.SUCCEEDED
    assert json.loads((folder / "out").read_text()) == [str(folder), *HOSTILE_WORDS, "a.sh"]
    target.remove()


@pytest.mark.soak
def test_changed_workflow_is_loaded_before_it_runs(airflow: Running, tmp_path: Path) -> None:
    def target(word: str) -> AirflowTarget:
        tasks = {"write": {"command": shell(f"echo {word} >> out")}}
        return AirflowTarget.of(plan_of(tmp_path, {"tasks": tasks, "airflow": airflow.settings}))

    for word in ("first", "second"):
        target(word).install()
        assert target(word).run(ignore).state is State.SUCCEEDED
    assert (tmp_path / "out").read_text() == "first\nsecond\n"
    target("second").remove()


def test_stream_is_stopped_when_its_workflow_is_removed(airflow: Running, tmp_path: Path) -> None:
    stream = shell("echo $$ > unfinished; mv unfinished pid; exec sleep 600")
    workflow = {
        "schedule": "continuous",
        "tasks": {"stream": {"command": stream}},
        "airflow": airflow.settings,
    }
    target = AirflowTarget.of(plan_of(tmp_path, workflow))
    target.install()
    first = target.run(ignore, wait=False)
    wait_for((tmp_path / "pid").exists)
    assert target.run(ignore, wait=False).id == first.id
    assert [run.state for run in target.status().runs] == [State.RUNNING]
    process = psutil.Process(int((tmp_path / "pid").read_text()))
    assert len(target.remove()) == 2
    process.wait(_SECONDS)
    assert target.status().runs == ()


@pytest.mark.soak
def test_run_that_was_stopped_by_hand_is_repaired(airflow: Running, tmp_path: Path) -> None:
    first = shell("test -e permit || { touch begun; exec sleep 600; }")
    workflow = {
        "retries": 0,
        "tasks": {
            "first": {"command": first},
            "second": {"command": shell("echo done >> out"), "after": "first"},
        },
        "airflow": airflow.settings,
    }
    plan = plan_of(tmp_path, workflow)
    target = AirflowTarget.of(plan)
    target.install()
    run = target.run(ignore, wait=False)
    wait_for((tmp_path / "begun").exists)
    api = AirflowApi(plan.workflow.airflow)
    api.patch("dags", dag_id(plan), "dagRuns", run.id, body={"state": "failed"})
    stopped = target.status().runs[0]
    assert [step.state for step in stopped.steps] == [State.FAILED, State.SKIPPED]

    (tmp_path / "permit").touch()
    repaired = target.repair(ignore)
    assert [step.state for step in repaired.steps] == [State.SUCCEEDED, State.SUCCEEDED]
    assert (tmp_path / "out").read_text() == "done\n"
    target.remove()


def test_dag_that_cannot_be_imported_is_reported(airflow: Running, tmp_path: Path) -> None:
    target = AirflowTarget.of(plan_of(tmp_path, {"airflow": airflow.settings}))
    (change,) = target.install()
    Path(change.where).write_text("import airflow, missing_package  # a DAG")
    with pytest.raises(WorkflowError, match="No module named 'missing_package'") as caught:
        target.run(ignore)
    assert caught.value.code == "scheduler-refused"
    target.remove()


def test_wrong_password_is_refused_without_repeating_it(airflow: Running, tmp_path: Path) -> None:
    (tmp_path / "wrong").write_text("horse-battery")
    settings = {**airflow.settings, "password": "file:wrong"}
    with pytest.raises(WorkflowError) as caught:
        AirflowTarget.of(plan_of(tmp_path, {"airflow": settings})).status()
    assert caught.value.code == "scheduler-refused"
    assert "horse-battery" not in str(caught.value)
    assert "workflow.airflow.password" in str(caught.value)


def test_expired_token_is_renewed(airflow: Running, tmp_path: Path) -> None:
    settings = plan_of(tmp_path, {"airflow": airflow.settings}).workflow.airflow
    api = AirflowApi(settings)
    api._token = "expired"
    assert api.get("dags")["dags"] == []
