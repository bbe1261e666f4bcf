"""The declaration of a workflow, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.config import Duration, InvalidPipeline, Secret, load_pipeline
from headgate.config.schedule import Schedule

Write = Callable[[str], Path]

PIPELINE = """\
name: games
source: {kafka: {servers: "localhost:9092", topics: [games]}}
registry: ./schemas
envelope: {wrapper: {message: w, route: game, schema_id: schema, payload: payload}}
lake: ./lake
"""
WHOLE = """\
workflow:
  schedule: "*/15 6-18 * * mon-fri"
  timezone: Europe/Berlin
  retries: 3
  retry_wait: 1m
  timeout: 2h
  streams_per_cluster: 4
  notify: {failure: [team@example.com, env:HOOK], retry: http://hooks.internal/x, success: []}
  email: {smtp: "smtp.example.com:587", sender: h@example.com, username: me, password: env:MAIL}
  tasks:
    land: land
    report: {command: dbt build --select 'tag:gold', after: land, retries: 0, timeout: 10m}
    notify: {command: [echo, done], after: [land, report]}
"""


def test_workflow_reads_every_key(write: Write) -> None:
    workflow = load_pipeline(write(PIPELINE + WHOLE)).workflow
    assert workflow is not None
    assert str(workflow.schedule) == "*/15 6-18 * * mon-fri"
    assert workflow.notify.failure == ("team@example.com", Secret("env", "HOOK"))
    assert workflow.notify.retry == ("http://hooks.internal/x",)
    assert workflow.tasks["land"].do == "land"
    assert workflow.tasks["report"].command == ("dbt", "build", "--select", "tag:gold")
    assert workflow.tasks["report"].after == ("land",)
    assert workflow.tasks["notify"].after == ("land", "report")
    assert workflow.tasks["report"].timeout == Duration(minutes=10)
    assert {*map(str, workflow.secrets)} == {"env:HOOK", "env:MAIL"}


@pytest.mark.parametrize(
    ("text", "code", "part"),
    [
        ("{schedule: sometimes}", "bad-value", "cron expression"),
        ("{schedule: 0 25 * * *}", "bad-value", "bad hour"),
        ("{schedule: 0 0 L * *}", "bad-value", "not cron's"),
        ("{schedule: 12}", "wrong-type", "schedule"),
        ("{timezone: Mars/Olympus}", "bad-value", "Europe/Berlin"),
        ("{retries: -1}", "bad-value", "greater than or equal to 0"),
        ("{tasks: {land: lnd}}", "bad-choice", "`land`?"),
        ("{tasks: {'a b': land}}", "bad-value", "letters"),
        ("{tasks: {land: {}}}", "choose-one", "`do` or `command`"),
        ("{tasks: {land: {do: land, command: x}}}", "choose-one", "`do` or `command`"),
        ('{tasks: {x: {command: "a \'b"}}}', "bad-value", "No closing quotation"),
        ("{tasks: {x: {command: []}}}", "bad-value", "needs a command"),
        ('{tasks: {x: {command: "a\\nb\\n"}, y: {command: ["a\\nb"]}}}', "bad-value", "script"),
        ("{tasks: {land: land, x: {command: a, after: lnd}}}", "bad-value", "`land`?"),
        ("{tasks: {a: {do: land, after: b}, b: {do: land, after: a}}}", "bad-value", "each other"),
        ("{tasks: {land: {do: land, cluster: big}}}", "bad-value", "databricks.clusters"),
        ("{tasks: {s: stream}}", "bad-value", "continuous"),
        (
            "{schedule: continuous, tasks: {s: stream, x: {command: a, after: s}}}",
            "bad-value",
            "never ends",
        ),
        ("{tasks: {t: train}}", "bad-value", "nothing to train"),
        ("{notify: {failure: not an address}}", "secret-in-file", "reference"),
        ("{notify: {failure: 'https://hooks.slack.com/services/T/B/x'}}", "secret-in-file", "env:"),
        ("{notify: {failure: 'https://a.example/?token=x'}}", "secret-in-file", "URL"),
        ("{notify: {failure: 'https://u:p@a.example/'}}", "secret-in-file", "URL"),
        ("{email: {sender: h@example.com, password: hunter2}}", "secret-in-file", "reference"),
        (
            "{email: {sender: h@a.example, username: me, password: env:X, security: none}}",
            "bad-value",
            "`none`",
        ),
        ("{email: {sender: h@a.example, password: env:X}}", "missing-key", "`username`"),
        ("{email: {sender: nobody}}", "bad-value", "e-mail address"),
        ("{email: {sender: h@a.example, smtp: 'http://x/y'}}", "bad-value", "587"),
        ("{databricks: {clusters: {a: {workers: 2}}}}", "missing-key", "node_type"),
    ],
)
def test_invalid_workflow_is_refused_with_a_hint(
    write: Write, text: str, code: str, part: str
) -> None:
    with pytest.raises(InvalidPipeline) as caught:
        load_pipeline(write(f"{PIPELINE}workflow: {text}\n"))
    assert caught.value.code == code
    assert part in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert caught.value.findings[0].line == 6


def test_every_pipeline_can_be_verified(write: Write) -> None:
    pipeline = load_pipeline(write(f"{PIPELINE}workflow: {{tasks: {{check: verify}}}}\n"))
    assert pipeline.workflow is not None
    assert pipeline.workflow.tasks["check"].do == "verify"


def test_shorthand_is_a_cron_expression() -> None:
    assert str(Schedule.parse("@Hourly")) == "0 * * * *"
    assert Schedule.parse("continuous").is_continuous


def test_weekdays_count_from_sunday() -> None:
    assert Schedule.parse("0 0 * * 5-7").weekdays == [0, 5, 6]


@given(
    st.sampled_from(["*", "*/15", "5", "0,30", "10-20/5"]),
    st.sampled_from(["*", "*/6", "3", "9-17"]),
    st.sampled_from(["*", "1", "1,15"]),
    st.sampled_from(["*", "1-5", "sun"]),
)
def test_times_of_a_schedule_match_its_fields(minute: str, hour: str, day: str, week: str) -> None:
    schedule = Schedule.parse(f"{minute} {hour} {day} * {week}")
    times = schedule.after(datetime(2026, 3, 1, tzinfo=UTC), ZoneInfo("UTC"))
    for _, time in zip(range(20), times, strict=False):
        assert time.minute in schedule.minutes
        assert time.hour in schedule.hours
        is_day, is_weekday = time.day in schedule.days, time.isoweekday() % 7 in schedule.weekdays
        assert is_day or is_weekday if schedule.names_day_and_weekday else is_day and is_weekday
