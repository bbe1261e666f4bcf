"""The steps of a workflow: order, shards, defaults."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.config import Duration, PipelineConfig, Wrapper, load_pipeline
from headgate.errors import UsageError
from headgate.workflow.plan import WorkflowPlan
from tests.workflow.workflows import plan_in


def test_pipeline_without_a_workflow_lands_and_retries_ten_times(tmp_path: Path) -> None:
    (land,) = plan_in(tmp_path).steps
    assert land.words("headgate") == ["headgate", "run", str(tmp_path / "games.yaml"), "--once"]
    assert (land.retries, land.retry_wait, land.timeout) == (10, Duration(seconds=30), None)


def test_default_tasks_are_what_the_pipeline_declares(tmp_path: Path) -> None:
    maintained = plan_in(tmp_path, more="maintain: true\n")
    assert [(step.name, step.after) for step in maintained.steps] == [
        ("land", ()),
        ("maintain", ("land",)),
    ]
    changes = tmp_path / "shop.yaml"
    changes.write_text(
        "name: shop\nsource: {files: {path: ./landing}}\nenvelope: datastream\nlake: ./lake\n"
    )
    assert [step.name for step in WorkflowPlan.of(load_pipeline(changes)).steps] == [
        "land",
        "verify",
    ]


def test_continuous_workflow_streams(tmp_path: Path) -> None:
    plan = plan_in(tmp_path, "  schedule: continuous\n  streams_per_cluster: 2\n", "shards: 3\n")
    assert [step.command[2:] for step in plan.steps] == [
        ("--shard", "1/3"),
        ("--shard", "2/3"),
        ("--shard", "3/3"),
    ]
    assert plan.at_once == 3  # a stream that waits for another to end would wait for ever


def test_shards_are_packed_and_waited_for(tmp_path: Path) -> None:
    tasks = (
        "  streams_per_cluster: 2\n  tasks: {land: land, maintain: {do: maintain, after: land}}\n"
    )
    plan = plan_in(tmp_path, tasks, "shards: 3\n")
    assert [(step.name, step.group) for step in plan.steps[:3]] == [
        ("land_1_of_3", 1),
        ("land_2_of_3", 1),
        ("land_3_of_3", 2),
    ]
    assert plan.steps[3].after == ("land_1_of_3", "land_2_of_3", "land_3_of_3")


def test_task_has_its_own_limits(tmp_path: Path) -> None:
    tasks = "  tasks: {a: {command: x, retries: 0, retry_wait: 5s, timeout: 1m}, b: {command: y}}\n"
    own, default = plan_in(tmp_path, f"  timeout: 1h\n{tasks}").steps
    assert (own.retries, own.retry_wait, own.timeout) == (
        0,
        Duration(seconds=5),
        Duration(minutes=1),
    )
    assert default.timeout == Duration(hours=1)
    assert not own.is_headgate


def test_steps_that_depend_on_others_are_found_through_others(tmp_path: Path) -> None:
    tasks = (
        "  tasks: {a: {command: x}, b: {command: x, after: a}, c: {command: x, after: b}, "
        "d: {command: x}}\n"
    )
    assert plan_in(tmp_path, tasks).depending_on(["b"]) == {"b", "c"}


def test_pipeline_without_a_file_has_no_workflow() -> None:
    pipeline = PipelineConfig(
        name="games",
        source={"delta": {"path": "./inbox"}},
        registry="./schemas",
        envelope=Wrapper(message="w", route="a", schema_id="b", payload="c"),
        lake="./lake",
    )
    with pytest.raises(UsageError, match="pipeline file"):
        WorkflowPlan.of(pipeline)
