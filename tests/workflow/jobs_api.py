"""A server with the parts of Databricks' API that workflows use, as its documentation has them.

Request bodies with unknown fields are refused, and so are jobs that the documentation rules out.
Runs advance by one tick with every look at them, and tasks fail as often as a test says.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from databricks.bundles.jobs import Job
from databricks.sdk.service.jobs import JobSettings
from databricks.sdk.service.settings import Config

Json = dict[str, Any]
TOKEN = "dapi-of-a-test"
_BEGAN = 1_700_000_000_000


@dataclass(frozen=True)
class Call:
    """A request as it was sent."""

    method: str
    path: str
    query: Json
    body: Json

    @property
    def line(self) -> str:
        return f"{self.method} {self.path.removeprefix('/api/')}"


@dataclass
class Answer(Exception):
    """A response other than 200."""

    status: int
    code: str
    message: str
    headers: dict[str, str] = field(default_factory=dict)


def invalid(message: str) -> Answer:
    return Answer(400, "INVALID_PARAMETER_VALUE", message)


@dataclass
class Attempt:
    """An attempt at a task of a run."""

    task: Json
    run_id: int
    number: int
    of_this_repair: int
    life: str = "PENDING"
    result: str | None = None
    began: int = 0
    ended: int = 0

    @property
    def key(self) -> str:
        return str(self.task["task_key"])

    def as_json(self, host: str) -> Json:
        message = "Workload failed, see run output for details" if self.result == "FAILED" else ""
        state: Json = {"life_cycle_state": self.life, "state_message": message}
        if self.result is not None:
            state["result_state"] = self.result
        return {
            "run_id": self.run_id,
            "task_key": self.key,
            "attempt_number": self.number,
            "start_time": self.began,
            "end_time": self.ended,
            "run_page_url": f"{host}/jobs/runs/{self.run_id}",
            "state": state,
        }


@dataclass
class Run:
    """A run of a job, with every attempt at its tasks."""

    run_id: int
    job_id: int
    token: str | None
    attempts: list[Attempt]
    repairs: list[Json]
    life: str = "PENDING"
    result: str | None = None
    ended: int = 0

    def last(self) -> dict[str, Attempt]:
        return {one.key: one for one in self.attempts}


class JobsApi:
    """The state of a workspace, and the calls that changed it."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.jobs: dict[int, Json] = {}
        self.runs: dict[int, Run] = {}
        self.files: dict[str, bytes] = {}
        self.folders: set[str] = {"/Workspace", "/Workspace/Shared"}
        self.destinations: dict[str, Json] = {}
        self.scopes: dict[str, set[str]] = {}
        self.failures: Counter[str] = Counter()
        """How often the next attempts at a task fail."""
        self.answers: list[Answer] = []
        """What the next requests get, whatever they ask for."""
        self.lost_after: int | None = None
        """Number of changes after which the response to one is lost, once."""
        self.answers_after: dict[str, list[Answer]] = {}
        """What the next requests of a kind get after they have been carried out."""
        self.shows_all_attempts = True
        """Whether a run lists earlier attempts too."""
        self.host = ""
        self._ids = iter(range(101, 10**6))
        self._time = _BEGAN
        self._lock = threading.Lock()

    def lines(self) -> list[str]:
        return [call.line for call in self.calls]

    def bodies(self, line: str) -> list[Json]:
        return [call.body for call in self.calls if call.line == line]

    def answer(self, call: Call) -> Json:
        with self._lock:
            self.calls.append(call)
            if self.answers:
                raise self.answers.pop(0)
            method = self._methods().get(call.line.partition("?")[0])
            if method is not None:
                done = method({**call.query, **call.body})
                if self.lost_after is not None and call.method != "GET":
                    self.lost_after -= 1
                if self.lost_after == 0:
                    self.lost_after = None
                    raise Answer(500, "INTERNAL_ERROR", "The response is lost.")
                if self.answers_after.get(call.line):
                    raise self.answers_after[call.line].pop(0)
                return done
            if call.line.startswith("DELETE 2.0/notification-destinations/"):
                return self._delete_destination(call.path.rpartition("/")[2])
            raise Answer(404, "ENDPOINT_NOT_FOUND", f"No API found for '{call.line}'")

    def _methods(self) -> dict[str, Callable[[Json], Json]]:
        return {
            "POST 2.2/jobs/create": self._create,
            "POST 2.2/jobs/reset": self._reset,
            "POST 2.2/jobs/delete": self._delete,
            "GET 2.2/jobs/get": self._get,
            "GET 2.2/jobs/list": self._list,
            "POST 2.2/jobs/run-now": self._run_now,
            "GET 2.2/jobs/runs/get": self._get_run,
            "GET 2.2/jobs/runs/get-output": self._get_output,
            "GET 2.2/jobs/runs/list": self._list_runs,
            "POST 2.2/jobs/runs/repair": self._repair,
            "POST 2.2/jobs/runs/cancel-all": self._cancel_all,
            "POST 2.0/workspace/mkdirs": self._mkdirs,
            "POST 2.0/workspace/import": self._import,
            "POST 2.0/workspace/delete": self._delete_file,
            "GET 2.0/workspace/list": self._list_files,
            "GET 2.0/secrets/list": self._list_secrets,
            "GET 2.0/notification-destinations": self._list_destinations,
            "POST 2.0/notification-destinations": self._create_destination,
        }

    # jobs

    def _create(self, body: Json) -> Json:
        self._check_job(body)
        job_id = next(self._ids)
        self.jobs[job_id] = body
        return {"job_id": job_id}

    def _reset(self, body: Json) -> Json:
        only(body, "job_id", "new_settings")
        self._job(body)
        self._check_job(body["new_settings"])
        self.jobs[body["job_id"]] = body["new_settings"]
        return {}

    def _delete(self, body: Json) -> Json:
        only(body, "job_id")
        self._job(body)
        del self.jobs[body["job_id"]]
        return {}

    def _get(self, query: Json) -> Json:
        only(query, "job_id")
        settings = self._job(query)
        tasks = [
            {"run_if": "ALL_SUCCESS", "timeout_seconds": 0, "email_notifications": {}, **task}
            for task in reversed(settings["tasks"])
        ]
        defaults = {"format": "MULTI_TASK", "timeout_seconds": 0, "email_notifications": {}}
        return {
            "job_id": int(query["job_id"]),
            "creator_user_name": "someone@example.com",
            "settings": {**defaults, **settings, "tasks": tasks},
        }

    def _list(self, query: Json) -> Json:
        only(query, "name", "limit", "page_token", "expand_tasks")
        name = query["name"].lower()
        hidden = ("tasks", "job_clusters")
        jobs = [
            {"job_id": number, "settings": {k: v for k, v in job.items() if k not in hidden}}
            for number, job in reversed(self.jobs.items())
            if job["name"].lower() == name
        ]
        return {"jobs": jobs, "has_more": False} if jobs else {"has_more": False}

    def _job(self, given: Json) -> Json:
        job = self.jobs.get(int(given["job_id"]))
        if job is None:
            raise invalid(f"Job {given['job_id']} does not exist.")
        return job

    def _check_job(self, job: Json) -> None:
        try:
            known = JobSettings.from_dict(job).as_dict()
            Job.from_dict({key: value for key, value in job.items() if key != "format"})  # type: ignore[arg-type]
        except Exception as error:
            raise Answer(400, "MALFORMED_REQUEST", f"Could not parse request: {error}") from None
        if known != job:
            raise Answer(400, "MALFORMED_REQUEST", "Could not parse request: unknown fields")
        refuse = next(refusals(job, self.files, self.destinations), None)
        if refuse is not None:
            raise invalid(refuse)

    # runs

    def _run_now(self, body: Json) -> Json:
        only(body, "job_id", "idempotency_token")
        job = self._job(body)
        known = [one for one in self.runs.values() if one.token == body["idempotency_token"]]
        if known:
            return {"run_id": known[0].run_id}
        attempts = [Attempt(task, next(self._ids), 0, 0) for task in job["tasks"]]
        run = Run(next(self._ids), body["job_id"], body["idempotency_token"], attempts, [])
        self.runs[run.run_id] = run
        return {"run_id": run.run_id, "number_in_job": run.run_id}

    def _run(self, given: Json) -> Run:
        run = self.runs.get(int(given["run_id"]))
        if run is None:
            raise invalid(f"Run {given['run_id']} does not exist.")
        return run

    def _get_run(self, query: Json) -> Json:
        only(query, "run_id", "include_history", "page_token")
        run = self._run(query)
        if run.result is None:
            self._tick(run)
        found = self._run_json(run)
        if query.get("include_history") == "true":
            original = {"type": "ORIGINAL", "state": found["state"]}
            found["repair_history"] = [original, *run.repairs]
        return found

    def _run_json(self, run: Run) -> Json:
        state: Json = {"life_cycle_state": run.life, "state_message": ""}
        if run.result is not None:
            state["result_state"] = run.result
        shown = run.attempts if self.shows_all_attempts else [*run.last().values()]
        return {
            "run_id": run.run_id,
            "job_id": run.job_id,
            "start_time": _BEGAN,
            "end_time": run.ended,
            "run_page_url": f"{self.host}/jobs/{run.job_id}/runs/{run.run_id}",
            "state": state,
            "tasks": [one.as_json(self.host) for one in shown],
        }

    def _list_runs(self, query: Json) -> Json:
        only(query, "job_id", "limit", "active_only", "expand_tasks", "page_token")
        found = [run for run in self.runs.values() if run.job_id == int(query["job_id"])]
        if query.get("active_only") == "true":
            found = [run for run in found if run.result is None]
        runs = [self._run_json(run) for run in reversed(found)]
        if query.get("expand_tasks") != "true":
            for run in runs:
                del run["tasks"]
        return {"runs": runs, "has_more": False} if runs else {"has_more": False}

    def _get_output(self, query: Json) -> Json:
        only(query, "run_id")
        number = int(query["run_id"])
        if number in self.runs:
            message = "Retrieving the output of runs with multiple tasks is not supported."
            raise invalid(message)
        attempts = [one for run in self.runs.values() for one in run.attempts]
        (attempt,) = [one for one in attempts if one.run_id == number]
        metadata = {"run_id": number, "state": attempt.as_json(self.host)["state"]}
        error = {"error": "RuntimeError: headgate failed with status 1"}
        return {"metadata": metadata, **(error if attempt.result == "FAILED" else {})}

    def _tick(self, run: Run) -> None:
        self._time += 1000
        run.life = "RUNNING"
        before = {key: (one.life, one.result) for key, one in run.last().items()}
        for key, attempt in run.last().items():
            needed = [before[one["task_key"]] for one in attempt.task.get("depends_on", ())]
            match attempt.life:
                case "RUNNING":
                    attempt.life, attempt.ended = "TERMINATED", self._time
                    attempt.result = "FAILED" if self.failures[key] else "SUCCESS"
                    self.failures[key] -= attempt.result == "FAILED"
                    if attempt.result == "FAILED":
                        self._retry(run, attempt)
                case "PENDING" if all(result == "SUCCESS" for _, result in needed):
                    attempt.life, attempt.began = "RUNNING", self._time
                case "PENDING" if any(
                    result in ("FAILED", "UPSTREAM_FAILED") for _, result in needed
                ):
                    attempt.life, attempt.result = "TERMINATED", "UPSTREAM_FAILED"
        results = {one.result for one in run.last().values()}
        if None not in results:
            run.life, run.ended = "TERMINATED", self._time
            run.result = "SUCCESS" if results == {"SUCCESS"} else "FAILED"

    def _retry(self, run: Run, failed: Attempt) -> None:
        if failed.of_this_repair < failed.task.get("max_retries", 0):
            run.attempts.append(
                Attempt(failed.task, next(self._ids), failed.number + 1, failed.of_this_repair + 1)
            )

    def _repair(self, body: Json) -> Json:
        fields = ("rerun_all_failed_tasks", "rerun_dependent_tasks", "latest_repair_id")
        only(body, "run_id", *fields)
        run = self._run(body)
        if run.result is None:
            raise Answer(400, "INVALID_STATE", "The run is still in progress.")
        latest = run.repairs[-1]["id"] if run.repairs else None
        if body.get("latest_repair_id") != latest:
            message = "The latest repair ID needs to be provided in order to create a new repair"
            raise invalid(message)
        again = {key for key, one in run.last().items() if one.result != "SUCCESS"}
        tasks = {task["task_key"]: task for task in self.jobs[run.job_id]["tasks"]}
        for key, task in tasks.items():
            needed = {one["task_key"] for one in task.get("depends_on", ())}
            if body.get("rerun_dependent_tasks") and needed & again:
                again.add(key)
        for key, last in run.last().items():
            if key in again:
                run.attempts.append(Attempt(tasks[key], next(self._ids), last.number + 1, 0))
        run.life, run.result = "PENDING", None
        repair = next(self._ids)
        run.repairs.append({"type": "REPAIR", "id": repair, "task_run_ids": []})
        return {"repair_id": repair}

    def _cancel_all(self, body: Json) -> Json:
        only(body, "job_id")
        self._job(body)
        for run in self.runs.values():
            if run.job_id == body["job_id"] and run.result is None:
                run.life, run.result = "TERMINATED", "CANCELED"
        return {}

    # the workspace

    def _mkdirs(self, body: Json) -> Json:
        only(body, "path")
        parts = body["path"].strip("/").split("/")
        self.folders |= {"/" + "/".join(parts[: end + 1]) for end in range(len(parts))}
        return {}

    def _import(self, form: Json) -> Json:
        only(form, "path", "format", "overwrite", "content")
        path = form["path"]
        if path.rpartition("/")[0] not in self.folders:
            raise Answer(404, "RESOURCE_DOES_NOT_EXIST", f"The parent folder of {path} is missing.")
        if path in self.files and form.get("overwrite") != "true":
            raise Answer(400, "RESOURCE_ALREADY_EXISTS", f"Path ({path}) already exists.")
        self.files[path] = form["content"]
        return {}

    def _below(self, folder: str) -> list[str]:
        return [one for one in (*self.folders, *self.files) if one.startswith(f"{folder}/")]

    def _delete_file(self, body: Json) -> Json:
        only(body, "path", "recursive")
        path, below = body["path"], self._below(body["path"])
        if path not in self.files and path not in self.folders:
            raise Answer(404, "RESOURCE_DOES_NOT_EXIST", f"Path ({path}) doesn't exist.")
        if below and not body.get("recursive"):
            raise Answer(400, "DIRECTORY_NOT_EMPTY", f"Folder ({path}) is not empty")
        for one in (path, *below):
            self.files.pop(one, None)
            self.folders.discard(one)
        return {}

    def _list_files(self, query: Json) -> Json:
        only(query, "path")
        path = query["path"]
        if path not in self.folders:
            path = f"/Workspace{path}"
        if path not in self.folders:
            raise Answer(404, "RESOURCE_DOES_NOT_EXIST", f"Path ({query['path']}) doesn't exist.")
        found = [one for one in self._below(path) if "/" not in one.removeprefix(f"{path}/")]
        objects = [
            {
                "path": one.removeprefix("/Workspace"),
                "object_type": "DIRECTORY" if one in self.folders else "FILE",
            }
            for one in sorted(found)
        ]
        return {"objects": objects} if objects else {}

    # secrets, of which only names can be listed

    def _list_secrets(self, query: Json) -> Json:
        only(query, "scope")
        if query["scope"] not in self.scopes:
            message = f"Scope {query['scope']} does not exist!"
            raise Answer(404, "RESOURCE_DOES_NOT_EXIST", message)
        return {"secrets": [{"key": key} for key in sorted(self.scopes[query["scope"]])]}

    # notification destinations

    def _list_destinations(self, query: Json) -> Json:
        only(query, "page_size", "page_token")
        shown = [
            {"id": key, "display_name": one["display_name"], "destination_type": "WEBHOOK"}
            for key, one in self.destinations.items()
        ]
        return {"results": shown}

    def _create_destination(self, body: Json) -> Json:
        only(body, "config", "display_name")
        if Config.from_dict(body["config"]).as_dict() != body["config"]:
            raise Answer(400, "MALFORMED_REQUEST", "Could not parse request: unknown fields")
        key = f"destination-{next(self._ids)}"
        self.destinations[key] = body
        return {"id": key, "display_name": body["display_name"]}

    def _delete_destination(self, key: str) -> Json:
        if key not in self.destinations:
            raise Answer(404, "RESOURCE_DOES_NOT_EXIST", f"No destination {key}")
        del self.destinations[key]
        return {}


def only(given: Json, *fields: str) -> None:
    unknown = given.keys() - {*fields}
    if unknown:
        raise Answer(400, "MALFORMED_REQUEST", f"Could not parse request: unknown {unknown}")


def refusals(job: Json, files: Json | dict[str, bytes], destinations: Json) -> Iterator[str]:
    """Yield why a job is invalid, by what the documentation says."""
    tasks = {task["task_key"]: task for task in job["tasks"]}
    clusters = {one["job_cluster_key"]: one["new_cluster"] for one in job.get("job_clusters", ())}
    if len(tasks) < len(job["tasks"]):
        yield "Task keys must be unique."
    if "schedule" in job and "continuous" in job:
        yield "Only one of schedule and continuous can be used."
    for key, task in tasks.items():
        if not {one["task_key"] for one in task.get("depends_on", ())} <= tasks.keys() - {key}:
            yield f"Task {key} depends on an unknown task."
        if "continuous" in job and ("depends_on" in task or "max_retries" in task):
            yield "A continuous job has neither dependencies nor retry policies."
        if ("existing_cluster_id" in task) == ("job_cluster_key" in task):
            yield f"Task {key} needs exactly one cluster."
        if "job_cluster_key" in task and task["job_cluster_key"] not in clusters:
            yield f"Task {key} has an unknown cluster."
        for library in task["libraries"]:
            ((_, path),) = library.items()
            if path not in files:
                yield f"Library {path} does not exist."
    for cluster in clusters.values():
        profile = cluster.get("spark_conf", {}).get("spark.databricks.cluster.profile")
        if (cluster["num_workers"] == 0) != (profile == "singleNode"):
            yield "Clusters without workers need the settings of a single node."
    if "schedule" in job:
        fields = job["schedule"]["quartz_cron_expression"].split()
        if len(fields) not in (6, 7) or (fields[3] == "?") == (fields[5] == "?"):
            yield "Invalid cron expression."
    for where in (job, *tasks.values()):
        for event in where.get("webhook_notifications", {}).values():
            if any(one["id"] not in destinations for one in event):
                yield "Unknown notification destination."


@contextmanager
def serve_jobs_api() -> Iterator[JobsApi]:
    """Serve the API on a port of this machine."""
    api = JobsApi()

    class Handler(BaseHTTPRequestHandler):
        def _handle(self) -> None:
            url = urlsplit(self.path)
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if not url.path.startswith("/api/"):  # the SDK asks for the kind of host
                self._send(404, {})
                return
            call = Call(self.command, url.path, dict(parse_qsl(url.query)), self._body(raw))
            try:
                if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                    raise Answer(401, "UNAUTHENTICATED", "Invalid access token.")
                self._send(200, api.answer(call))
            except Answer as answer:
                body = {"error_code": answer.code, "message": answer.message}
                self._send(answer.status, body, answer.headers)

        do_GET = do_POST = do_DELETE = _handle

        def _body(self, raw: bytes) -> Json:
            kind = self.headers.get("Content-Type", "")
            if not raw:
                return {}
            if "multipart" not in kind:
                parsed: Json = json.loads(raw)
                return parsed
            form = message_from_bytes(f"Content-Type: {kind}\r\n\r\n".encode() + raw)
            parts = {
                str(part.get_param("name", header="content-disposition")): part.get_payload(
                    decode=True
                )
                for part in form.walk()
                if not part.is_multipart()
            }
            return {
                name: value if name == "content" else bytes(value).decode()
                for name, value in parts.items()
            }

        def _send(self, status: int, body: Json, headers: dict[str, str] | None = None) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    api.host = f"http://127.0.0.1:{server.server_port}"
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
