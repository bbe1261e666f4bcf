from __future__ import annotations

import ast
import os
import shlex
from pathlib import Path

import pytest

from headgate.config import Secret
from headgate.errors import UsageError
from headgate.workflow.airflow.dag import bash_command, render_dag, variable_names
from headgate.workflow.plan import WorkflowPlan
from tests.airflow.games import HEADGATE, HOSTILE_FOLDER, HOSTILE_WORDS, plan_of, plans

GOLDEN = Path(__file__).with_name("golden") / "airflow"
"""`UPDATE_SNAPSHOTS=1 make test ARGS=tests/workflow` rewrites the files."""


@pytest.mark.parametrize("name", ["schedule", "shards", "continuous", "by_hand", "hostile"])
def test_dag_is_the_golden_file(tmp_path: Path, name: str) -> None:
    rendered = render_dag(plans(tmp_path)[name])
    compile(rendered, name, "exec")
    # Not named `.py`: Airflow is not installed here, so linters would not find its modules.
    golden = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        golden.write_text(rendered, "utf-8")
    assert rendered == golden.read_text("utf-8")


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    rendered = render_dag(plans(tmp_path)["hostile"])
    operators = _calls(rendered, "BashOperator")
    commands = {_value(call, "task_id"): _value(call, "bash_command") for call in operators}
    assert {name: shlex.split(command) for name, command in commands.items()} == {
        "DAG": ["exec", "python", "-c", "pass", *HOSTILE_WORDS],
        "class": ["exec", "FOO=bar", "time", "a.sh"],
        "a-b": ["exec", "open"],
        "a_b": ["exec", "print"],
    }
    assert commands["class"].endswith(" ")
    (dag,) = _calls(rendered, "DAG")
    (defaults,) = (each.value for each in dag.keywords if each.arg == "default_args")
    assert isinstance(defaults, ast.Dict)
    values = {
        key.value: value
        for key, value in zip(defaults.keys, defaults.values, strict=True)
        if isinstance(key, ast.Constant)
    }
    assert _text(values["cwd"]) == f"/srv/{HOSTILE_FOLDER}"
    assert _text(values["pool"]) == "'); import os; ('"


def test_templates_are_marked_as_text(tmp_path: Path) -> None:
    rendered = render_dag(plans(tmp_path)["hostile"])
    literals = [_text(call.args[0]) for call in _calls(rendered, "literal")]
    assert {f"/srv/{HOSTILE_FOLDER}", "{{ conn }}'", "{{ds}}@example.com"} < {*literals}
    assert len(literals) == 4


def test_steps_have_variables_of_their_own(tmp_path: Path) -> None:
    variables = variable_names(plans(tmp_path)["hostile"].steps)
    assert variables == {"DAG": "DAG_", "class": "class_", "a-b": "a_b", "a_b": "a_b_"}


def test_command_that_ends_like_a_script_is_not_one(tmp_path: Path) -> None:
    plan = plan_of(
        tmp_path, {"tasks": {"a": {"command": "./a.bash"}, "b": {"command": "./b.sh x"}}}
    )
    by_name = {name: bash_command(step, HEADGATE) for name, step in plan.by_name.items()}
    assert by_name == {"a": "exec ./a.bash ", "b": "exec ./b.sh x"}


def test_secret_that_workers_cannot_resolve_is_refused(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, {"notify": {"failure": "env:HOOK"}})
    other = Secret("vault", "hook")
    notify = plan.workflow.notify.model_copy(update={"failure": (other,)})
    with pytest.raises(UsageError, match="Airflow cannot resolve") as caught:
        render_dag(_with(plan, {"notify": notify}))
    assert "env:NAME" in (caught.value.hint or "")


@pytest.mark.parametrize("schedule", ["0 0 */2 * 1", "0 0 1 * */2"])
def test_days_that_airflow_reads_otherwise_are_refused(tmp_path: Path, schedule: str) -> None:
    with pytest.raises(UsageError, match="on days that cron does not"):
        render_dag(plan_of(tmp_path, {"schedule": schedule}))


@pytest.mark.parametrize("schedule", ["0 0 1 * 1", "0 0 */2 * *", "0 0 * * 1-5"])
def test_other_days_are_accepted(tmp_path: Path, schedule: str) -> None:
    assert f'CronTriggerTimetable("{schedule}"' in render_dag(
        plan_of(tmp_path, {"schedule": schedule})
    )


def _with(plan: WorkflowPlan, changes: dict[str, object]) -> WorkflowPlan:
    workflow = plan.workflow.model_copy(update=changes)
    return WorkflowPlan(plan.pipeline, plan.file, workflow, plan.steps)


def _calls(code: str, name: str) -> list[ast.Call]:
    return [
        node
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == name
    ]


def _value(call: ast.Call, argument: str) -> str:
    return next(_text(each.value) for each in call.keywords if each.arg == argument)


def _text(node: ast.expr) -> str:
    """Return the text of an expression, or of that inside `literal(…)`."""
    value = ast.literal_eval(node.args[0] if isinstance(node, ast.Call) else node)
    assert isinstance(value, str)
    return value
