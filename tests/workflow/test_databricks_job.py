"""The job as a value: its shape by Databricks' own types, and what it has of the workflow."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from databricks.bundles.jobs import Job
from databricks.sdk.service.jobs import JobSettings
from hypothesis import given
from hypothesis import strategies as st

from headgate.cluster.wheel import pinned_requirements
from headgate.config import Secret
from headgate.config.schedule import Schedule
from headgate.errors import InvalidPipeline, UsageError
from headgate.workflow.databricks.job import Places, job_of, quartz, webhooks
from headgate.workflow.databricks.target import DatabricksTarget
from headgate.workflow.plan import WorkflowPlan

GOLDEN = Path(__file__).parent / "golden" / "databricks"
Plans = Callable[..., WorkflowPlan]
Written = dict[str, Any]


def job(plan: WorkflowPlan) -> dict[str, Any]:
    ids = {name: f"id-of-{name}" for name in webhooks(plan)}
    return job_of(plan, Places("/W/games.yaml", "/W/headgate.whl", "/W/requirements.txt", ids))


def tasks(plan: WorkflowPlan) -> dict[str, dict[str, Any]]:
    return {task["task_key"]: task for task in job(plan)["tasks"]}


def clusters(plan: WorkflowPlan) -> dict[str, dict[str, Any]]:
    return {one["job_cluster_key"]: one["new_cluster"] for one in job(plan)["job_clusters"]}


def workflow(**keys: object) -> Callable[[Written], None]:
    return lambda written: written["workflow"].update(keys)


def databricks(**keys: object) -> Callable[[Written], None]:
    return lambda written: written["workflow"]["databricks"].update(keys)


def pipeline(**keys: object) -> Callable[[Written], None]:
    return lambda written: written.update(keys)


def test_bundle_is_the_golden_one(games_on_databricks: Plans) -> None:
    rendered = dict(DatabricksTarget.of(games_on_databricks()).render())
    # Versions change with every update of the lock file.
    assert rendered.pop("requirements.txt").splitlines() == pinned_requirements()
    if os.environ.get("UPDATE_SNAPSHOTS"):
        for name, text in rendered.items():
            (GOLDEN / name).parent.mkdir(parents=True, exist_ok=True)
            (GOLDEN / name).write_text(text)
    files = [path for path in GOLDEN.rglob("*") if path.is_file()]
    assert {str(path.relative_to(GOLDEN)): path.read_text() for path in files} == rendered


def test_bundle_has_the_job_that_is_installed(games_on_databricks: Plans) -> None:
    plan = games_on_databricks()
    rendered = DatabricksTarget.of(plan).render()
    in_bundle = yaml.safe_load(rendered["resources/headgate_games.job.yml"])
    (bundled,) = in_bundle["resources"]["jobs"].values()
    Job.from_dict(bundled)
    installed = job(plan)
    del installed["run_as"]  # a bundle has it per target
    assert bundled.keys() == installed.keys()
    assert bundled["job_clusters"] == installed["job_clusters"]
    assert [one["task_key"] for one in bundled["tasks"]] == [*tasks(plan)]


@pytest.mark.parametrize("continuous", [False, True])
def test_job_has_the_shape_of_databricks_own_types(
    games_on_databricks: Plans, continuous: bool
) -> None:
    change = [workflow(schedule="continuous", tasks={})] if continuous else []
    value = job(games_on_databricks(*change))
    Job.from_dict(value)  # type: ignore[arg-type]
    assert JobSettings.from_dict(value).as_dict() == value


def test_types_refuse_what_they_do_not_know(games_on_databricks: Plans) -> None:
    value = job(games_on_databricks())
    value["tasks"][0]["retries"] = 3
    with pytest.raises(ValueError, match="retries"):
        Job.from_dict(value)  # type: ignore[arg-type]
    assert JobSettings.from_dict(value).as_dict() != value


def test_shards_are_packed_on_clusters(games_on_databricks: Plans) -> None:
    packed = {name: task["job_cluster_key"] for name, task in tasks(games_on_databricks()).items()}
    assert packed == {
        **{f"land_{shard}_of_8": f"land_{(shard + 2) // 3}" for shard in range(1, 9)},
        "maintain": "small",
        "report": "main",
    }


def test_group_never_has_the_name_of_a_declared_cluster(games_on_databricks: Plans) -> None:
    named = {"land_1": {"node_type": "i3.xlarge"}, "small": {"node_type": "i3.xlarge"}}
    plan = games_on_databricks(databricks(clusters=named))
    assert tasks(plan)["land_1_of_8"]["job_cluster_key"] == "land_1_"
    assert tasks(plan)["report"]["job_cluster_key"] == "land_1"


def test_existing_cluster_is_used_as_it_is(games_on_databricks: Plans) -> None:
    named = {"main": {"existing": "0923-164208-meows279"}, "small": {"policy": "policy-1"}}
    plan = games_on_databricks(databricks(clusters=named))
    assert tasks(plan)["land_1_of_8"]["existing_cluster_id"] == "0923-164208-meows279"
    assert "job_cluster_key" not in tasks(plan)["land_1_of_8"]
    assert [*clusters(plan)] == ["small"]
    assert clusters(plan)["small"]["apply_policy_default_values"] is True


def test_existing_cluster_needs_no_scope(games_on_databricks: Plans) -> None:
    named = {"main": {"existing": "0923-164208-meows279"}, "small": {"existing": "b"}}
    plan = games_on_databricks(databricks(clusters=named, secret_scope=None))
    DatabricksTarget.of(plan).render()
    assert "job_clusters" not in job(plan)


def test_extras_that_a_pipeline_needs_are_required(games_on_databricks: Plans) -> None:
    plan = games_on_databricks()
    kind: Any = "databricks"
    settings = {"spark.hadoop.fs.s3a.secret.key": Secret(kind, "lake/key")}
    changed = WorkflowPlan.of(plan.pipeline.model_copy(update={"spark": settings}), plan.file)
    with_sdk = DatabricksTarget.of(changed).render()["requirements.txt"]
    assert "databricks-sdk==" in with_sdk
    assert "databricks-sdk==" not in DatabricksTarget.of(plan).render()["requirements.txt"]


def test_cluster_without_workers_is_a_single_node(games_on_databricks: Plans) -> None:
    single, several = (clusters(games_on_databricks())[name] for name in ("land_1", "small"))
    assert single["num_workers"] == 0
    assert single["spark_conf"]["spark.databricks.cluster.profile"] == "singleNode"
    assert single["spark_conf"]["spark.master"] == "local[*, 4]"
    assert single["custom_tags"]["ResourceClass"] == "SingleNode"
    assert several["num_workers"] == 2
    assert "spark.master" not in several["spark_conf"]


def test_settings_of_the_pipeline_are_those_of_its_clusters(games_on_databricks: Plans) -> None:
    of_spark = {
        "spark.master": "local[2]",
        "spark.driver.memory": "2g",
        "spark.sql.ansi.enabled": True,
    }
    spark = clusters(games_on_databricks(pipeline(spark=of_spark)))["small"]["spark_conf"]
    assert spark["spark.sql.ansi.enabled"] == "true"
    assert spark["spark.hadoop.fs.s3a.endpoint.region"] == "eu-central-1"
    assert not {"spark.master", "spark.driver.memory", "spark.hadoop.fs.s3.impl"} & spark.keys()


def test_secrets_are_references_to_the_scope(games_on_databricks: Plans) -> None:
    cluster = clusters(games_on_databricks())["small"]
    assert cluster["spark_env_vars"] == {
        name: f"{{{{secrets/games/{name}}}}}"
        for name in ("KAFKA_PASSWORD", "KAFKA_USER", "REGISTRY_TOKEN")
    }
    key = cluster["spark_conf"]["spark.hadoop.fs.s3a.secret.key"]
    assert key == "{{secrets/games/STORAGE_KEY}}"


def test_secret_of_a_named_scope_is_a_reference_to_it(games_on_databricks: Plans) -> None:
    plan = games_on_databricks()
    kind: Any = "databricks"
    settings = {"spark.hadoop.fs.s3a.secret.key": Secret(kind, "lake/key")}
    changed = plan.pipeline.model_copy(update={"spark": settings})
    spark = clusters(WorkflowPlan.of(changed, plan.file))["land_1"]["spark_conf"]
    assert spark["spark.hadoop.fs.s3a.secret.key"] == "{{secrets/lake/key}}"


def test_command_is_run_as_a_step_of_the_workflow(games_on_databricks: Plans) -> None:
    report = tasks(games_on_databricks())["report"]
    parameters = report["python_wheel_task"]["parameters"]
    assert parameters == ["workflow", "run", "/W/games.yaml", "--only", "report"]
    assert report["depends_on"] == [{"task_key": "maintain"}]
    assert report["timeout_seconds"] == 3600
    assert report["retry_on_timeout"] is True


def test_retries_are_those_of_the_step(games_on_databricks: Plans) -> None:
    land, maintain = (tasks(games_on_databricks())[name] for name in ("land_1_of_8", "maintain"))
    assert (land["max_retries"], land["min_retry_interval_millis"]) == (10, 30_000)
    assert maintain["max_retries"] == 2


def test_retries_are_reported_by_tasks_that_have_some(games_on_databricks: Plans) -> None:
    def no_retries(written: Written) -> None:
        written["workflow"]["tasks"]["maintain"]["retries"] = 0

    found = tasks(games_on_databricks(no_retries))
    assert found["report"]["notification_settings"] == {"alert_on_last_attempt": False}
    assert found["report"]["email_notifications"] == {"on_failure": ["on-call@example.com"]}
    assert "notification_settings" not in found["maintain"]


def test_webhooks_are_destinations(games_on_databricks: Plans) -> None:
    assert job(games_on_databricks())["webhook_notifications"] == {
        "on_failure": [{"id": "id-of-chat_webhook"}],
        "on_success": [{"id": "id-of-hooks_example_com"}],
    }


def test_webhooks_with_the_same_host_have_names_of_their_own(games_on_databricks: Plans) -> None:
    urls = ["https://hooks.example.com/a", "https://hooks.example.com/b"]
    plan = games_on_databricks(workflow(notify={"failure": urls}))
    assert webhooks(plan) == {"hooks_example_com": urls[0], "hooks_example_com_2": urls[1]}


def test_continuous_job_leaves_retries_to_databricks(games_on_databricks: Plans) -> None:
    plan = games_on_databricks(workflow(schedule="continuous", tasks={}))
    value = job(plan)
    assert value["continuous"] == {"pause_status": "UNPAUSED", "task_retry_mode": "ON_FAILURE"}
    assert not {"schedule", "queue"} & value.keys()
    assert all("max_retries" not in task for task in value["tasks"])


def test_workflow_without_a_schedule_is_started_by_hand(games_on_databricks: Plans) -> None:
    plan = games_on_databricks(workflow(schedule=None))
    assert not {"schedule", "continuous"} & job(plan).keys()


@pytest.mark.parametrize(
    ("cron", "expression"),
    [
        ("*/10 * * * *", "0 0,10,20,30,40,50 * * * ?"),
        ("daily", "0 0 0 * * ?"),
        ("weekly", "0 0 0 ? * 1"),
        ("30 4 1,15 */6 *", "0 30 4 1,15 1,7 ?"),
        ("15 6-22 * * 1-5", "0 15 6-22 ? * 2-6"),
        ("0 0 * * 7", "0 0 0 ? * 1"),
    ],
)
def test_schedule_becomes_a_quartz_expression(cron: str, expression: str) -> None:
    assert quartz(Schedule.parse(cron)) == expression


def _values(text: str, first: int, count: int) -> set[int]:
    if text in ("*", "?"):
        return set(range(first, first + count))
    bounds = [[*map(int, part.split("-"))] for part in text.split(",")]
    return {value for one in bounds for value in range(one[0], one[-1] + 1)}


_FIELD = st.sampled_from(["*", "0", "*/7", "3,5", "2-6", "1"])


@given(
    _FIELD, _FIELD, st.sampled_from(["*", "1", "5-9"]), st.sampled_from(["*", "0", "1-5", "6,0"])
)
def test_quartz_expression_has_the_times_of_the_schedule(
    minute: str, hour: str, month: str, weekday: str
) -> None:
    schedule = Schedule.parse(f"{minute} {hour} * {month} {weekday}")
    fields = quartz(schedule).split()
    for time, _ in zip(
        schedule.after(datetime(2026, 1, 1, tzinfo=UTC), UTC), range(5), strict=False
    ):
        assert time.minute in _values(fields[1], 0, 60)
        assert time.hour in _values(fields[2], 0, 24)
        assert time.month in _values(fields[4], 1, 12)
        assert time.isoweekday() % 7 + 1 in _values(fields[5], 1, 7)
    assert len(_values(fields[1], 0, 60)) == len(schedule.minutes)
    assert len(_values(fields[2], 0, 24)) == len(schedule.hours)
    assert len(_values(fields[5], 1, 7)) == len(schedule.weekdays)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            pipeline(workflow={"databricks": {"secret_scope": "games"}}),
            "`workflow.databricks.clusters` is missing",
        ),
        (databricks(folder="/Shared/games"), "`workflow.databricks.folder` is not a folder of the"),
        (databricks(secret_scope=None), "needs the secret `env:"),
        (pipeline(commit="auto"), "`commit` must be `spark` on Databricks, not `auto`"),
        (
            pipeline(catalog={"name": "games", "in": "thrift://a:9083"}),
            "`catalog.in` cannot be a Hive",
        ),
        (pipeline(checkpoint="./checkpoint"), "`checkpoint` is a folder of this machine"),
        (pipeline(registry={"folder": "./schemas"}), "`registry.folder` is a folder of this"),
        (pipeline(registry={"url": "http://localhost:8081"}), "`registry.url` is this machine"),
        (
            pipeline(source={"kafka": {"servers": "a:1, localhost:9092", "topics": ["games"]}}),
            "`source.kafka.servers` is this machine, which Databricks cannot reach: `localhost",
        ),
        (workflow(schedule="0 0 1 * 1"), "names days and weekdays"),
        (
            workflow(schedule="continuous", tasks={"a": "land", "b": {"do": "land", "after": "a"}}),
            "cannot be `continuous` for tasks that come after others",
        ),
        (
            pipeline(spark={"spark.hadoop.fs.s3a.secret.key": "file:/Volumes/main/games/key"}),
            "clusters take only secrets of a scope",
        ),
        (
            pipeline(registry={"url": "https://a.b", "token": "file:/home/me/token"}),
            "is in a file of this machine",
        ),
        (
            pipeline(registry={"url": "https://registry.example.com", "ca": "/etc/ca.pem"}),
            "`registry.ca` is a file of this machine",
        ),
        (
            pipeline(
                registry={"url": "https://a.b", "certificate": "/Volumes/a.pem", "key": "./a.key"}
            ),
            "`registry.key` is a private key, which is not uploaded",
        ),
    ],
)
def test_workflow_that_databricks_cannot_run_is_refused(
    games_on_databricks: Plans, tmp_path: Path, change: Callable[[Written], None], message: str
) -> None:
    (tmp_path / "a.key").touch()
    plan = games_on_databricks(change)
    target = DatabricksTarget.of(plan)
    for action in (target.render, target.install):
        with pytest.raises(InvalidPipeline) as raised:
            action()
        (finding,) = raised.value.findings
        assert message in finding.message
        assert finding.hint is not None


def test_all_problems_are_reported_at_once(games_on_databricks: Plans) -> None:
    plan = games_on_databricks(pipeline(commit="auto"), databricks(secret_scope=None))
    with pytest.raises(InvalidPipeline) as raised:
        DatabricksTarget.of(plan).render()
    assert len(raised.value.findings) == 2


def test_files_in_volumes_and_their_secrets_are_accepted(games_on_databricks: Plans) -> None:
    plan = games_on_databricks(
        pipeline(
            lake="/Volumes/main/games/lake",
            storage={},
            registry={
                "url": "https://registry.example.com",
                "ca": "/Volumes/main/games/ca.pem",
                "token": "file:/Volumes/main/games/token",
            },
        )
    )
    DatabricksTarget.of(plan).render()


def test_files_beside_the_pipeline_file_go_along(
    games_on_databricks: Plans, tmp_path: Path
) -> None:
    (tmp_path / "certificates").mkdir()
    (tmp_path / "certificates" / "ca.pem").write_text("a certificate")
    (tmp_path / "games").write_text("a file that has the name of a topic")
    registry = {"url": "https://registry.example.com", "ca": "./certificates/ca.pem"}
    rendered = DatabricksTarget.of(games_on_databricks(pipeline(registry=registry))).render()
    assert rendered["certificates/ca.pem"] == "a certificate"
    assert "wrapper.proto" in rendered
    assert "games" not in rendered


def test_given_wheel_is_taken(games_on_databricks: Plans, tmp_path: Path) -> None:
    given = tmp_path / "headgate-9.9-py3-none-any.whl"
    given.write_bytes(b"a wheel")
    target = DatabricksTarget.of(games_on_databricks(), str(given))
    assert target.wheel(tmp_path / "dist").read_bytes() == b"a wheel"
    missing = DatabricksTarget.of(games_on_databricks(), str(tmp_path / "none.whl"))
    with pytest.raises(UsageError, match="is not a wheel"):
        missing.wheel(tmp_path / "dist")
