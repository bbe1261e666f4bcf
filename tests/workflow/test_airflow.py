from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from headgate.config import Airflow, Secret
from headgate.errors import UsageError, WorkflowError
from headgate.lab.process import HOST, choose_port
from headgate.workflow.airflow.api import AirflowApi
from headgate.workflow.airflow.target import AirflowTarget, _last_error
from tests.airflow.games import plan_of


def test_install_writes_one_file_and_says_what_changed(tmp_path: Path) -> None:
    dags = tmp_path / "dags"
    dags.mkdir()
    target = AirflowTarget.of(plan_of(tmp_path, {"airflow": {"dags": str(dags)}}))
    actions = [[change.action for change in target.install()] for _ in range(2)]
    assert actions == [["created"], ["unchanged"]]
    (file,) = dags.iterdir()
    assert {file.name: file.read_text()} == target.render()
    changed = {"retries": 1, "airflow": {"dags": str(dags)}}
    (change,) = AirflowTarget.of(plan_of(tmp_path, changed)).install()
    assert (change.what, change.where, change.action) == ("file", str(file), "updated")
    assert [*dags.iterdir()] == [file]


def test_install_needs_a_folder_of_dags(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"`workflow\.airflow\.dags` is missing") as caught:
        AirflowTarget.of(plan_of(tmp_path, {})).install()
    assert "headgate workflow render" in (caught.value.hint or "")
    elsewhere = {"airflow": {"dags": str(tmp_path / "missing")}}
    with pytest.raises(UsageError, match="No such file or directory"):
        AirflowTarget.of(plan_of(tmp_path, elsewhere)).install()


def test_api_that_does_not_answer(tmp_path: Path) -> None:
    port = choose_port("nothing", requested=None)
    with pytest.raises(WorkflowError, match="does not answer") as caught:
        _api(tmp_path, port).get("dags")
    assert caught.value.code == "scheduler-unavailable"
    assert "horse-battery" not in str(caught.value)


def test_server_that_is_not_airflow(tmp_path: Path) -> None:
    with _server(200, b"<html>") as (port, _), pytest.raises(WorkflowError) as caught:
        _api(tmp_path, port).get("dags")
    assert caught.value.code == "scheduler-unavailable"


def test_refused_login_does_not_repeat_the_answer(tmp_path: Path) -> None:
    answer = b'{"detail": "horse-battery"}'
    with _server(422, answer) as (port, _), pytest.raises(WorkflowError, match="422") as caught:
        _api(tmp_path, port).get("dags")
    assert caught.value.code == "scheduler-refused"
    assert "horse-battery" not in str(caught.value)


def test_token_is_not_sent_to_another_server(tmp_path: Path) -> None:
    with _server(200, b'{"dags": []}') as (other, received):
        headers = {"Location": f"http://{HOST}:{other}/dags"}
        with _server(302, b"", headers) as (port, _):
            api = _api(tmp_path, port)
            api._token = "a-token"
            assert api.get("dags") == {"dags": []}
    assert [headers.get("Authorization") for headers in received] == [None]


def test_why_a_step_failed_is_in_its_log() -> None:
    def printed(*lines: str) -> list[object]:
        logger = "airflow.task.hooks.SubprocessHook"
        return ["::group::", *({"event": line, "logger": logger} for line in lines)]

    ended = "Command exited with return code 1"
    raised = {"event": "Task failed", "error_detail": [{"exc_value": "Timeout"}]}
    assert _last_error(None) is None
    assert _last_error([*printed("Running command: x"), raised]) == "Timeout"
    assert _last_error([*printed("Output:", "half done", ended), raised]) == "half done"
    log = printed("Output:", "error: no disk [batch-failed]", "hint: add one", ended)
    assert _last_error([*log, raised]) == "no disk [batch-failed]"


def _api(folder: Path, port: int) -> AirflowApi:
    password = folder / "password"
    password.write_text("horse-battery")
    settings = Airflow(
        url=f"http://{HOST}:{port}", username="admin", password=Secret("file", str(password))
    )
    return AirflowApi(settings, patience=0)


@contextmanager
def _server(
    status: int, body: bytes, headers: dict[str, str] | None = None
) -> Iterator[tuple[int, list[dict[str, str]]]]:
    """Answer every request alike; yield the port, and the headers of requests."""
    received: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            received.append(dict(self.headers))
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer((HOST, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port, received
        finally:
            server.shutdown()
            thread.join()
