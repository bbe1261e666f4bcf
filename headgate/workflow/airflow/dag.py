"""The DAG of a workflow: a file for Airflow that needs nothing of Headgate but its command."""

from __future__ import annotations

import builtins
import keyword
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta

from headgate.config import Duration, Secret, Workflow
from headgate.config.workflow import is_email
from headgate.errors import UsageError
from headgate.workflow.plan import Step, WorkflowPlan, headgate_command

_WIDTH = 100
_EVENTS = ("failure", "retry", "success")
_IMPORTED = {"BashOperator", "CronTriggerTimetable", "DAG", "Path", "SmtpNotifier", "email"}
_IMPORTED |= {"cross_downstream", "json", "literal", "os", "pendulum", "timedelta", "urllib"}
_IMPORTED |= {"webhook"}
_JINJA = re.compile(r"\{[{%#]|[\r\n]")
"""What Jinja replaces: expressions, and line breaks that it normalizes."""
_SCRIPTS = (".sh", ".bash")
"""Ends of texts that Airflow takes for the name of a file with a template."""

_EMAIL = '''\
def email(to, event):
    """Return a notifier that sends an e-mail."""
    subject = "succeeded"
    facts = ["Workflow: %(name)s", "Run:      {{ run_id | e }}"]
    if event != "success":
        subject = "{{ ti.task_id }} failed" + (", will be retried" if event == "retry" else "")
        facts += [
            "Step:     {{ ti.task_id }}",
            "Attempt:  {{ ti.try_number }} of {{ ti.max_tries + 1 }}",
            "Error:    {{ exception | e }}",
            "Log:      {{ ti.log_url }}",
        ]
    return SmtpNotifier(
        smtp_conn_id=%(connection)s,
        to=to,
        subject=f"[headgate] %(name)s: {subject}",
        html_content="<pre>" + "\\n".join(facts) + "</pre>",
    )
'''

_WEBHOOK = '''\
def webhook(url, event):
    """Return a callback that posts a notice as JSON; the URL is read when it is needed."""

    def notify(context):
        text = "%(name)s: succeeded"
        notice = {"event": event, "workflow": "%(name)s", "run": context["run_id"]}
        if event != "success":
            ti = context["ti"]
            text = f"%(name)s: {ti.task_id} failed"
            text += ", will be retried" if event == "retry" else ""
            notice["step"] = ti.task_id
            notice["attempt"] = ti.try_number
            notice["error"] = str(context.get("exception"))
            notice["log"] = ti.log_url
        address = url()
        if not address.startswith(("http://", "https://")):
            raise ValueError("the URL of the webhook does not begin with http:// or https://")
        request = urllib.request.Request(
            address,
            data=json.dumps({"text": text, **notice}).encode(),
            headers={"Content-Type": "application/json"},
        )
        urllib.request.urlopen(request, timeout=15).close()

    return notify
'''


def dag_id(plan: WorkflowPlan) -> str:
    return f"headgate_{plan.name}"


def render_dag(plan: WorkflowPlan) -> str:
    """Return the Python file of the DAG."""
    notices = {event: [*_notices(plan, event)] for event in _EVENTS}
    steps, dependencies = _steps(plan), _dependencies(plan)
    dag = ["with DAG(", *_indented(_settings(plan, notices)), "):"]
    body = [*_indented(steps), "", *_indented(dependencies)] if dependencies else _indented(steps)
    code = "\n".join([*_definitions(plan, notices), *dag, *body])
    header = [
        f"# The workflow of the pipeline {plan.name}.",
        f"# Written by `headgate workflow render` from {plan.file!r}; changes are overwritten.",
    ]
    return "\n".join([*header, "", *_imports(code), "", code]) + "\n"


def _imports(code: str) -> Iterator[str]:
    """Yield the imports that the code needs."""
    standard = {"json.dumps(": "json", "os.environ[": "os", "urllib.request.": "urllib.request"}
    yield from (f"import {module}" for use, module in standard.items() if use in code)
    yield "from datetime import timedelta"
    if "Path(" in code:
        yield "from pathlib import Path"
    yield ""
    if "pendulum.datetime(" in code:
        yield "import pendulum"
    if "SmtpNotifier(" in code:
        yield "from airflow.providers.smtp.notifications.smtp import SmtpNotifier"
    yield "from airflow.providers.standard.operators.bash import BashOperator"
    names = ("DAG", "CronTriggerTimetable", "cross_downstream", "literal")
    yield f"from airflow.sdk import {', '.join(name for name in names if f'{name}(' in code)}"


def _definitions(plan: WorkflowPlan, notices: Mapping[str, Sequence[str]]) -> Iterator[str]:
    every = "".join(notice for event in notices.values() for notice in event)
    names = {"name": plan.name, "connection": _template(plan.workflow.airflow.smtp_connection, ())}
    for function, text in (("email(", _EMAIL), ("webhook(", _WEBHOOK)):
        if function in every:
            yield ""
            yield from (text % names).splitlines()
            yield ""
    if every:
        yield ""


def _settings(plan: WorkflowPlan, notices: Mapping[str, Sequence[str]]) -> Iterator[str]:
    workflow = plan.workflow
    yield f"dag_id={_text(dag_id(plan))},"
    yield from _schedule(workflow)
    yield "catchup=False,"
    yield "max_active_runs=1,"
    yield f"max_active_tasks={plan.at_once},"
    yield "is_paused_upon_creation=False,"
    yield 'tags=["headgate"],'
    yield from _callbacks("on_success_callback=", notices["success"])
    yield "default_args={"
    yield from _indented(_defaults(plan, notices))
    yield "},"


def _schedule(workflow: Workflow) -> Iterator[str]:
    schedule = workflow.schedule
    if schedule is None:
        yield "schedule=None,"
    elif schedule.is_continuous:
        yield 'schedule="@continuous",'
        yield 'start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),'
    else:
        _, _, day, _, weekday = schedule.text.split()
        if "*" not in (day, weekday) and not schedule.names_day_and_weekday:
            raise UsageError(
                "bad-argument",
                f"Airflow runs `{schedule}` on days that cron does not: a day of the month, or of "
                "the week, is enough for it",
                hint="give days of the month or of the week, and `*` for the other",
            )
        # Without a start date: the first run is at the next time, not at the one before.
        zone = _text(workflow.timezone)
        yield f"schedule=CronTriggerTimetable({_text(schedule.text)}, timezone={zone}),"


def _defaults(plan: WorkflowPlan, notices: Mapping[str, Sequence[str]]) -> Iterator[str]:
    workflow = plan.workflow
    yield f'"cwd": {_template(plan.folder)},'
    yield '"append_env": True,'
    yield '"do_xcom_push": False,'
    yield '"skip_on_exit_code": None,'
    yield f'"pool": {_text(workflow.airflow.pool)},'
    yield f'"retries": {workflow.retries},'
    yield f'"retry_delay": {_duration(workflow.retry_wait)},'
    if workflow.timeout is not None:
        yield f'"execution_timeout": {_duration(workflow.timeout)},'
    for event in ("failure", "retry"):
        yield from _callbacks(f'"on_{event}_callback": ', notices[event])


def _callbacks(key: str, notices: Sequence[str]) -> Iterator[str]:
    if notices:
        yield f"{key}["
        yield from _indented(f"{notice}," for notice in notices)
        yield "],"


def _notices(plan: WorkflowPlan, event: str) -> Iterator[str]:
    """Yield the callbacks that notify recipients of an event."""
    recipients: Sequence[str | Secret] = getattr(plan.workflow.notify, event)
    addresses = [one for one in recipients if isinstance(one, str) and is_email(one)]
    if addresses:
        to = ", ".join(_template(address, ()) for address in addresses)
        yield f"email([{to}], {_text(event)})"
    for one in recipients:
        if not is_email(one):
            yield f"webhook(lambda: {_url(one)}, {_text(event)})"


def _url(recipient: str | Secret) -> str:
    """Return the expression that reads the URL of a webhook on the machine that posts to it."""
    match recipient:
        case str():
            return _text(recipient)
        case Secret(kind="env", name=name):
            return f"os.environ[{_text(name)}]"
        case Secret(kind="file", name=name):
            return f"Path({_text(name)}).read_text().strip()"
        case _:
            raise UsageError(
                "bad-argument",
                f"Airflow cannot resolve the webhook `{recipient}`",
                hint="refer to it by `env:NAME` or `file:/path`, as Airflow's workers have it",
            )


def _steps(plan: WorkflowPlan) -> list[str]:
    variables = variable_names(plan.steps)
    headgate = plan.workflow.airflow.headgate or headgate_command()
    lines: list[str] = []
    for step in plan.steps:
        lines.append(f"{variables[step.name]} = BashOperator(")
        lines += _indented(_arguments(plan, step, headgate))
        lines.append(")")
    return lines


def _arguments(plan: WorkflowPlan, step: Step, headgate: str) -> Iterator[str]:
    workflow = plan.workflow
    yield f"task_id={_text(step.name)},"
    yield f"bash_command={_template(bash_command(step, headgate))},"
    if step.retries != workflow.retries:
        yield f"retries={step.retries},"
    if step.retry_wait != workflow.retry_wait:
        yield f"retry_delay={_duration(step.retry_wait)},"
    if step.timeout is not None and step.timeout != workflow.timeout:
        yield f"execution_timeout={_duration(step.timeout)},"


def bash_command(step: Step, headgate: str) -> str:
    """Return the command for Bash, which runs a program even if a builtin has its name."""
    words = shlex.join(step.words(headgate))
    command = words if step.is_headgate else f"exec {words}"
    # A space at the end: else Airflow takes the command for the name of a script.
    return f"{command} " if command.endswith(_SCRIPTS) else command


def _dependencies(plan: WorkflowPlan) -> list[str]:
    variables = variable_names(plan.steps)
    groups: dict[tuple[str, ...], list[str]] = {}
    for step in plan.steps:
        if step.after:
            after = tuple(variables[name] for name in step.after)
            groups.setdefault(after, []).append(variables[step.name])
    lines: list[str] = []
    for before, after_them in groups.items():
        if len(before) > 1 and len(after_them) > 1:
            lines += [
                "cross_downstream(",
                *_indented([*_list(before, ","), *_list(after_them, ",")]),
            ]
            lines.append(")")
        elif len(before) > 1:
            lines += _list(before, f" >> {after_them[0]}")
        elif len(after_them) > 1:
            first, *rest = _list(after_them)
            lines += [f"{before[0]} >> {first}", *rest]
        else:
            lines.append(f"{before[0]} >> {after_them[0]}")
    return lines


def variable_names(steps: Iterable[Step]) -> dict[str, str]:
    """Return a variable for each step, by the name of the step."""
    taken = {*keyword.kwlist, *dir(builtins), *_IMPORTED}
    variables: dict[str, str] = {}
    for step in steps:
        variable = re.sub(r"\W", "_", step.name, flags=re.ASCII)
        while variable in taken:
            variable += "_"
        taken.add(variable)
        variables[step.name] = variable
    return variables


def _template(text: str, scripts: tuple[str, ...] = _SCRIPTS) -> str:
    """Return text as an expression whose value Airflow does not take for a template."""
    is_template = _JINJA.search(text) or (scripts and text.endswith(scripts))
    return f"literal({_text(text)})" if is_template else _text(text)


def _text(text: str | None) -> str:
    """Return the literal of a text, in double quotes if it has neither those nor escapes."""
    literal = repr(text)
    plain = literal[1:-1] == text and '"' not in text
    return f'"{text}"' if plain else literal


def _duration(duration: timedelta) -> str:
    count, unit = str(Duration(seconds=duration.total_seconds())).split()
    return f"timedelta({unit.removesuffix('s')}s={count})"


def _list(names: Sequence[str], end: str = "") -> list[str]:
    line = f"[{', '.join(names)}]{end}"
    if len(line) < _WIDTH - 12:
        return [line]
    return ["[", *_indented(f"{name}," for name in names), f"]{end}"]


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" for each in lines for line in each.split("\n")]
