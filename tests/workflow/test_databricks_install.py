"""Installing, running, repairing and removing, against a server with the API of Databricks."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.errors import PipelineFileError, SetupError, WorkflowError
from headgate.workflow.databricks.target import DatabricksTarget
from headgate.workflow.plan import WorkflowPlan
from headgate.workflow.target import Change, State, Target, WorkflowRun
from tests.workflow.jobs_api import TOKEN, Answer, JobsApi, serve_jobs_api

FOLDER = "/Workspace/Shared/headgate/games"
SECRETS = {
    "KAFKA_USER": "the-user-of-kafka",
    "KAFKA_PASSWORD": "the-password-of-kafka",
    "REGISTRY_TOKEN": "the-token-of-the-registry",
    "STORAGE_KEY": "the-key-of-the-storage",
}
WEBHOOK = "https://chat.example.com/a-path-that-is-a-secret"
Plans = Callable[..., WorkflowPlan]


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[JobsApi]:
    with serve_jobs_api() as api:
        api.scopes = {"games": {*SECRETS}}
        monkeypatch.setenv("DATABRICKS_HOST", api.host)
        monkeypatch.setenv("DATABRICKS_TOKEN", TOKEN)
        monkeypatch.setenv("DATABRICKS_CONFIG_FILE", "/nowhere")
        monkeypatch.setenv("CHAT_WEBHOOK", WEBHOOK)
        for name, value in SECRETS.items():
            monkeypatch.setenv(name, value)
        yield api


def target(plan: WorkflowPlan) -> DatabricksTarget:
    return DatabricksTarget(plan, every=0, give_up_after=5)


def actions(changes: Any) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for change in changes:
        found.setdefault(change.what, set()).add(change.action)
    return found


def ignore(_: WorkflowRun) -> None:
    pass


def states(run: WorkflowRun) -> dict[str, tuple[str, int]]:
    return {step.name: (step.state.value, step.attempts) for step in run.steps}


def test_first_installation_creates_everything(api: JobsApi, games_on_databricks: Plans) -> None:
    changes = target(games_on_databricks()).install()
    assert actions(changes) == {"destination": {"created"}, "file": {"created"}, "job": {"created"}}
    (release,) = {path.rpartition("/")[0] for path in api.files}
    assert release.startswith(f"{FOLDER}/release-")
    assert {path.removeprefix(f"{release}/") for path in api.files} == {
        "games.yaml",
        "headgate-0.1.0-py3-none-any.whl",
        "requirements.txt",
        "wrapper.proto",
    }
    (job,) = api.jobs.values()
    assert job["tasks"][0]["libraries"] == [
        {"requirements": f"{release}/requirements.txt"},
        {"whl": f"{release}/headgate-0.1.0-py3-none-any.whl"},
    ]
    assert job["tasks"][0]["python_wheel_task"]["parameters"][:2] == [
        "run",
        f"{release}/games.yaml",
    ]
    assert job["run_as"] == {"service_principal_name": "6a1f0f5e-0d6b-4f6c-9d4e-3a5b7c9d1e2f"}


def test_requests_of_an_installation_come_in_an_order_that_survives_interruption(
    api: JobsApi, games_on_databricks: Plans
) -> None:
    target(games_on_databricks()).install()
    upload = ["POST 2.0/workspace/mkdirs", "POST 2.0/workspace/import"]
    assert api.lines() == [
        "GET 2.2/jobs/list",
        "GET 2.0/secrets/list",
        "GET 2.0/notification-destinations",
        "POST 2.0/notification-destinations",
        "POST 2.0/notification-destinations",
        "GET 2.0/workspace/list",
        *upload * 4,
        "GET 2.2/jobs/list",
        "POST 2.2/jobs/create",
        "GET 2.2/jobs/runs/list",
        "GET 2.0/workspace/list",
    ]
    titles = [one["display_name"] for one in api.bodies("POST 2.0/notification-destinations")]
    assert titles == ["headgate games: chat_webhook", "headgate games: hooks_example_com"]
    first = api.bodies("POST 2.0/workspace/import")[0]
    assert {"format": "AUTO", "overwrite": "true"}.items() <= first.items()


@pytest.mark.parametrize("changes", range(1, 12))
def test_installation_goes_on_where_it_was_interrupted(
    api: JobsApi, games_on_databricks: Plans, changes: int
) -> None:
    api.lost_after = changes
    with pytest.raises(WorkflowError, match="The response is lost"):
        target(games_on_databricks()).install()
    target(games_on_databricks()).install()
    assert target(games_on_databricks()).status().is_current
    assert (len(api.jobs), len(api.files), len(api.destinations)) == (1, 4, 2)


def test_second_installation_changes_nothing(api: JobsApi, games_on_databricks: Plans) -> None:
    target(games_on_databricks()).install()
    api.calls.clear()
    changes = target(games_on_databricks()).install()
    assert {change.action for change in changes} == {"unchanged"}
    assert [line for line in api.lines() if not line.startswith("GET")] == []


def test_change_of_the_file_resets_the_job_and_replaces_the_release(
    api: JobsApi, games_on_databricks: Plans
) -> None:
    def hourly(written: dict[str, Any]) -> None:
        written["workflow"]["schedule"] = "hourly"

    target(games_on_databricks()).install()
    before = {*api.files}
    changes = target(games_on_databricks(hourly)).install()
    assert actions(changes)["job"] == {"updated"}
    (body,) = api.bodies("POST 2.2/jobs/reset")
    assert body["job_id"] in api.jobs
    assert body["new_settings"]["schedule"]["quartz_cron_expression"] == "0 0 * * * ?"
    assert len(api.jobs) == 1
    assert not before & {*api.files}


def test_files_of_an_earlier_release_stay_while_a_run_reads_them(
    api: JobsApi, games_on_databricks: Plans
) -> None:
    def hourly(written: dict[str, Any]) -> None:
        written["workflow"]["schedule"] = "hourly"

    target(games_on_databricks()).install()
    before = {*api.files}
    target(games_on_databricks()).run(ignore, wait=False)
    target(games_on_databricks(hourly)).install()
    assert before < {*api.files}


def test_update_does_not_resume_a_paused_job(api: JobsApi, games_on_databricks: Plans) -> None:
    def hourly(written: dict[str, Any]) -> None:
        written["workflow"]["schedule"] = "hourly"

    target(games_on_databricks()).install()
    (job,) = api.jobs.values()
    job["schedule"]["pause_status"] = "PAUSED"
    assert target(games_on_databricks()).status().is_paused
    assert target(games_on_databricks()).status().next_run is None
    target(games_on_databricks(hourly)).install()
    (job,) = api.jobs.values()
    assert job["schedule"]["quartz_cron_expression"] == "0 0 * * * ?"
    assert job["schedule"]["pause_status"] == "PAUSED"


def test_change_in_the_workspace_is_found_and_undone(
    api: JobsApi, games_on_databricks: Plans
) -> None:
    target(games_on_databricks()).install()
    (job,) = api.jobs.values()
    assert target(games_on_databricks()).status().is_current
    job["tasks"][0]["max_retries"] = 0
    assert not target(games_on_databricks()).status().is_current
    assert actions(target(games_on_databricks()).install())["job"] == {"updated"}


@pytest.mark.parametrize("shows_all_attempts", [True, False])
def test_failed_task_is_repaired_with_those_after_it(
    api: JobsApi, games_on_databricks: Plans, shows_all_attempts: bool
) -> None:
    api.shows_all_attempts = shows_all_attempts
    api.failures.update({"land_2_of_8": 1, "maintain": 3})
    installed = target(games_on_databricks())
    installed.install()
    seen: list[WorkflowRun] = []
    run = installed.run(seen.append)
    assert run.state is State.FAILED
    assert states(run) == {
        **{f"land_{shard}_of_8": ("succeeded", 1) for shard in range(1, 9)},
        "land_2_of_8": ("succeeded", 2),
        "maintain": ("failed", 3),
        "report": ("skipped", 0),
    }
    (failed,) = run.failed
    assert failed.error == "RuntimeError: headgate failed with status 1"
    assert failed.log is not None
    assert run.url is not None
    assert run.url.endswith(f"/runs/{run.id}")
    before = [step for one in seen if not one.state.is_over for step in one.steps]
    assert {step.attempts for step in before if step.state is State.FAILED} == {3}

    api.calls.clear()
    repaired = installed.repair(ignore)
    assert repaired.id == run.id
    assert repaired.state is State.SUCCEEDED
    assert states(repaired) == {
        **{f"land_{shard}_of_8": ("succeeded", 1) for shard in range(1, 9)},
        "land_2_of_8": ("succeeded", 2),
        "maintain": ("succeeded", 4),
        "report": ("succeeded", 2),
    }
    assert api.bodies("POST 2.2/jobs/runs/repair") == [
        {"run_id": int(run.id), "rerun_all_failed_tasks": True, "rerun_dependent_tasks": True}
    ]
    assert "POST 2.2/jobs/run-now" not in api.lines()


def test_second_repair_names_the_first(api: JobsApi, games_on_databricks: Plans) -> None:
    api.failures["maintain"] = 6
    installed = target(games_on_databricks())
    installed.install()
    assert installed.run(ignore).state is State.FAILED
    assert installed.repair(ignore).state is State.FAILED
    assert installed.repair(ignore).state is State.SUCCEEDED
    first, second = api.bodies("POST 2.2/jobs/runs/repair")
    assert "latest_repair_id" not in first
    assert second["latest_repair_id"] > 0


def test_run_that_succeeded_has_nothing_to_repair(api: JobsApi, games_on_databricks: Plans) -> None:
    installed = target(games_on_databricks())
    installed.install()
    with pytest.raises(WorkflowError, match="has no run to repair") as none:
        installed.repair(ignore)
    assert none.value.code == "workflow-missing"
    assert installed.run(ignore).state is State.SUCCEEDED
    with pytest.raises(WorkflowError, match="has no run to repair"):
        installed.repair(ignore)


def test_run_in_progress_is_not_repaired(api: JobsApi, games_on_databricks: Plans) -> None:
    installed = target(games_on_databricks())
    installed.install()
    installed.run(ignore, wait=False)
    with pytest.raises(WorkflowError, match="is not over") as refused:
        installed.repair(ignore)
    assert refused.value.code == "scheduler-refused"
    assert "POST 2.2/jobs/runs/repair" not in api.lines()


def test_status_has_the_latest_runs_the_newest_first(
    api: JobsApi, games_on_databricks: Plans
) -> None:
    installed = target(games_on_databricks())
    assert not installed.status().is_installed
    installed.install()
    first = installed.run(ignore)
    second = installed.run(ignore, wait=False)
    status = installed.status()
    assert [run.id for run in status.runs] == [second.id, first.id]
    assert status.is_installed
    assert status.is_current
    assert status.next_run is not None


def test_nothing_is_left_after_removal(api: JobsApi, games_on_databricks: Plans) -> None:
    installed = target(games_on_databricks())
    installed.install()
    installed.run(ignore, wait=False)
    api.calls.clear()
    changes = installed.remove()
    assert {change.action for change in changes} == {"removed"}
    assert (api.jobs, api.files, api.destinations) == ({}, {}, {})
    assert FOLDER not in api.folders
    lines = api.lines()
    cancelled = lines.index("POST 2.2/jobs/runs/cancel-all")
    assert cancelled < lines.index("POST 2.2/jobs/delete")
    assert installed.remove() == []


def test_other_jobs_files_and_destinations_stay(api: JobsApi, games_on_databricks: Plans) -> None:
    installed = target(games_on_databricks())
    installed.install()
    (job,) = api.jobs.values()
    api.jobs[7] = {**job, "tags": {}}
    api.files[f"{FOLDER}/notes.txt"] = b"of someone"
    api.destinations["destination-7"] = {"display_name": "of someone"}
    installed.remove()
    assert [*api.jobs] == [7]
    assert [*api.files] == [f"{FOLDER}/notes.txt"]
    assert [*api.destinations] == ["destination-7"]


def test_job_of_a_bundle_can_be_run_but_is_left_to_the_bundle(
    api: JobsApi, games_on_databricks: Plans
) -> None:
    installed = target(games_on_databricks())
    installed.install()
    (job,) = api.jobs.values()
    job["deployment"] = {"kind": "BUNDLE", "metadata_file_path": "/Workspace/state"}
    api.calls.clear()
    for action in (installed.install, installed.remove):
        with pytest.raises(WorkflowError, match="belongs to an Asset Bundle") as raised:
            action()
        assert raised.value.code == "scheduler-refused"
    assert {*api.lines()} == {"GET 2.2/jobs/list"}
    assert installed.run(ignore).state is State.SUCCEEDED


def test_second_job_of_a_repeated_request_is_deleted(
    api: JobsApi, games_on_databricks: Plans
) -> None:
    busy = Answer(429, "REQUEST_LIMIT_EXCEEDED", "Slow down.", {"Retry-After": "0"})
    api.answers_after["POST 2.2/jobs/create"] = [busy]
    target(games_on_databricks()).install()
    first, second = api.jobs
    target(games_on_databricks()).install()
    assert [*api.jobs] == [first]
    assert api.bodies("POST 2.2/jobs/delete") == [{"job_id": second}]


def test_workflow_that_is_not_installed_cannot_run(
    api: JobsApi, games_on_databricks: Plans
) -> None:
    with pytest.raises(WorkflowError, match="is not installed") as missing:
        target(games_on_databricks()).run(ignore)
    assert missing.value.code == "workflow-missing"
    assert missing.value.hint is not None


def test_secrets_are_in_no_request_and_no_output(
    api: JobsApi, games_on_databricks: Plans, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    api.failures["maintain"] = 3
    installed = target(games_on_databricks())
    said: list[object] = [*installed.render().items(), *installed.install()]
    said += [installed.run(said.append), installed.repair(said.append), installed.status()]
    said += installed.remove()
    is_webhook = [call.line == "POST 2.0/notification-destinations" for call in api.calls]
    sent = [call for call, skip in zip(api.calls, is_webhook, strict=True) if not skip]
    for value in (*SECRETS.values(), WEBHOOK, TOKEN):
        assert value not in repr(sent)
        assert value not in repr(said)
        assert value not in caplog.text
    urls = [
        body["config"]["generic_webhook"]["url"]
        for body in api.bodies("POST 2.0/notification-destinations")
    ]
    assert urls == [WEBHOOK, "https://hooks.example.com/games"]


def test_webhook_is_resolved_only_to_create_its_destination(
    api: JobsApi, games_on_databricks: Plans, monkeypatch: pytest.MonkeyPatch
) -> None:
    target(games_on_databricks()).install()
    monkeypatch.delenv("CHAT_WEBHOOK")
    assert {change.action for change in target(games_on_databricks()).install()} == {"unchanged"}


def test_secrets_that_the_scope_lacks_are_named(api: JobsApi, games_on_databricks: Plans) -> None:
    api.scopes["games"] -= {"STORAGE_KEY"}
    with pytest.raises(PipelineFileError, match="`games` has no key `STORAGE_KEY`") as raised:
        target(games_on_databricks()).install()
    assert raised.value.hint == "databricks secrets put-secret games STORAGE_KEY"
    api.scopes.clear()
    with pytest.raises(PipelineFileError, match="has no secret scope `games`"):
        target(games_on_databricks()).install()
    assert all(line.startswith("GET") for line in api.lines())


def test_scope_that_may_not_be_listed_is_trusted(api: JobsApi, games_on_databricks: Plans) -> None:
    api.answers_after["GET 2.0/secrets/list"] = [Answer(403, "PERMISSION_DENIED", "No.")]
    target(games_on_databricks()).install()
    assert len(api.jobs) == 1


@pytest.mark.parametrize(
    ("answer", "code", "hint"),
    [
        (Answer(401, "UNAUTHENTICATED", "Invalid token."), "scheduler-refused", "DATABRICKS_TOKEN"),
        (Answer(403, "PERMISSION_DENIED", "No."), "scheduler-refused", "permission"),
        (Answer(500, "INTERNAL_ERROR", "Oh."), "scheduler-unavailable", "later"),
        (Answer(400, "INVALID_PARAMETER_VALUE", "No such thing."), "scheduler-refused", None),
    ],
)
def test_refusals_and_faults_of_the_api_are_errors_with_hints(
    api: JobsApi, games_on_databricks: Plans, answer: Answer, code: str, hint: str | None
) -> None:
    api.answers = [answer]
    with pytest.raises(WorkflowError) as raised:
        target(games_on_databricks()).status()
    assert raised.value.code == code
    assert answer.message.rstrip(".") in raised.value.message
    assert (raised.value.hint is None) if hint is None else (hint in str(raised.value.hint))
    assert TOKEN not in str(raised.value)


def test_wrong_token_is_refused(
    api: JobsApi, games_on_databricks: Plans, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABRICKS_TOKEN", "dapi-of-another")
    with pytest.raises(WorkflowError, match="Invalid access token") as raised:
        target(games_on_databricks()).install()
    assert raised.value.code == "scheduler-refused"
    assert "dapi-of-another" not in str(raised.value)


def test_throttled_request_is_repeated(api: JobsApi, games_on_databricks: Plans) -> None:
    api.answers = [Answer(429, "REQUEST_LIMIT_EXCEEDED", "Slow down.", {"Retry-After": "0"})]
    assert not target(games_on_databricks()).status().is_installed
    assert api.lines() == ["GET 2.2/jobs/list"] * 2


def test_repeated_request_for_a_run_starts_one(api: JobsApi, games_on_databricks: Plans) -> None:
    installed = target(games_on_databricks())
    installed.install()
    busy = Answer(429, "REQUEST_LIMIT_EXCEEDED", "Slow down.", {"Retry-After": "0"})
    api.answers_after["POST 2.2/jobs/run-now"] = [busy]
    installed.run(ignore)
    first, second = api.bodies("POST 2.2/jobs/run-now")
    assert first == second
    assert len(api.runs) == 1


def test_dead_server_is_given_up_on(games_on_databricks: Plans, api: JobsApi) -> None:
    with serve_jobs_api() as dead:
        host = dead.host
    plan = games_on_databricks()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATABRICKS_HOST", host)
        with pytest.raises(WorkflowError, match="does not answer") as raised:
            DatabricksTarget(plan, give_up_after=1).install()
    assert raised.value.code == "scheduler-unavailable"
    assert "DATABRICKS_HOST" in str(raised.value.hint)
    assert api.calls == []


def test_without_credentials_the_hint_says_what_to_set(
    games_on_databricks: Plans, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DATABRICKS_HOST", "DATABRICKS_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DATABRICKS_CONFIG_FILE", "/nowhere")
    with pytest.raises(WorkflowError) as raised:
        target(games_on_databricks()).status()
    assert raised.value.code == "scheduler-refused"
    assert "DATABRICKS_HOST" in str(raised.value.hint)


def test_profile_that_does_not_exist_is_named(
    games_on_databricks: Plans, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def games(written: dict[str, Any]) -> None:
        written["workflow"]["databricks"]["profile"] = "games"

    (tmp_path / "databrickscfg").write_text("[other]\nhost = https://a.example.com\n")
    monkeypatch.setenv("DATABRICKS_CONFIG_FILE", str(tmp_path / "databrickscfg"))
    with pytest.raises(WorkflowError, match="no games profile") as raised:
        target(games_on_databricks(games)).status()
    assert raised.value.code == "scheduler-refused"


def test_without_the_sdk_the_extra_is_named(
    games_on_databricks: Plans, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "databricks.sdk", None)
    installed = target(games_on_databricks())
    assert "databricks.yml" in installed.render()
    with pytest.raises(SetupError) as raised:
        installed.install()
    assert raised.value.code == "extra-missing"
    assert raised.value.hint == 'pip install "headgate[databricks]"'


def test_contract_server_refuses_unknown_fields(api: JobsApi) -> None:
    for body in ({"name": "x", "tasks": [], "retries": 3}, {"tasks": [{"task_key": "a", "b": 1}]}):
        with pytest.raises(Answer) as refused:
            api._check_job(json.loads(json.dumps(body)))
        assert refused.value.code == "MALFORMED_REQUEST"


def test_change_values_are_plain(api: JobsApi, games_on_databricks: Plans) -> None:
    installed: Target = target(games_on_databricks())
    *_, job = installed.install()
    (job_id,) = api.jobs
    assert job == Change("job", f"{api.host}/jobs/{job_id}")
