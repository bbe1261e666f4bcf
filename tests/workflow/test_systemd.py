"""Units of systemd, checked by systemd's own tools where they are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from headgate.config.schedule import Schedule
from headgate.errors import InvalidPipeline, WorkflowError
from headgate.workflow.journal import Journal
from headgate.workflow.systemd import SystemdTarget, calendar_events
from tests.workflow.workflows import plan_in

analyze = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd is not installed"
)


def target_in(folder: Path, workflow: str, more: str = "") -> SystemdTarget:
    plan = plan_in(folder, workflow, more)
    target = SystemdTarget(plan, Journal(folder / "journal"), headgate="/opt/headgate/bin/headgate")
    target.is_system = True
    return target


def test_schedule_becomes_a_timer(tmp_path: Path) -> None:
    target = target_in(tmp_path, "  schedule: '*/30 6 * * 1-5'\n  timezone: Europe/Berlin\n")
    files = target.render()
    assert [*files] == ["headgate-games.service", "headgate-games.timer"]
    assert "Type=oneshot\n" in files["headgate-games.service"]
    assert (
        "OnCalendar=Mon,Tue,Wed,Thu,Fri *-*-* 06:00,30:00 Europe/Berlin\n"
        in files["headgate-games.timer"]
    )


def test_continuous_workflow_is_a_service_that_is_restarted(tmp_path: Path) -> None:
    files = target_in(tmp_path, "  schedule: continuous\n").render()
    assert [*files] == ["headgate-games.service"]
    assert "Restart=always\nRestartSec=30\n" in files["headgate-games.service"]
    assert "WantedBy=multi-user.target" in files["headgate-games.service"]


def test_secrets_come_from_a_file_of_the_system(tmp_path: Path) -> None:
    more = "spark: {spark.hadoop.some.password: env:SOME}\n"
    service = target_in(tmp_path, "  schedule: daily\n", more).render()["headgate-games.service"]
    assert "EnvironmentFile=/etc/headgate/games.env\n" in service


@pytest.mark.parametrize(
    "text", ["*/15 * * * *", "0 6,18 * * *", "30 9-17 * * 1-5", "0 0 1 */3 *", "5 4 * * sun"]
)
@analyze
def test_timer_elapses_when_cron_would_run(text: str) -> None:
    schedule = Schedule.parse(text)
    (event,) = calendar_events(schedule)
    now = datetime.now(UTC)
    words = ["systemd-analyze", "calendar", "--iterations=3", f"--base-time=@{now:%s}"]
    shown = subprocess.run(
        [*words, f"{event} UTC"], capture_output=True, text=True, check=True, env={"TZ": "UTC"}
    ).stdout
    elapses = [
        line.partition(": ")[2]
        for line in shown.splitlines()
        if "elapse:" in line or "Iter." in line
    ]
    times = schedule.after(now, ZoneInfo("UTC"))
    expected = [f"{next(times):%a %Y-%m-%d %H:%M:%S UTC}" for _ in range(3)]
    assert elapses == expected


def test_day_or_weekday_are_two_events() -> None:
    assert calendar_events(Schedule.parse("0 0 13 * 5")) == [
        "*-*-13 00:00:00",
        "Fri *-*-* 00:00:00",
    ]


@analyze
def test_units_with_hostile_paths_are_what_systemd_reads(tmp_path: Path) -> None:
    folder = tmp_path / "a b 100% $HOME 'x' \"y\""
    target = target_in(folder, "  schedule: hourly\n")
    target.headgate = "/bin/true"
    paths = []
    for name, text in target.render().items():
        paths.append(tmp_path / name)
        paths[-1].write_text(text)
    shown = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *map(str, paths)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert not [line for line in shown.stderr.splitlines() if "headgate-games" in line]


def test_workflow_without_a_schedule_is_not_installed(tmp_path: Path) -> None:
    with pytest.raises(InvalidPipeline, match="no schedule"):
        target_in(tmp_path, "  retries: 1\n").install()


SYSTEMCTL = """\
#!/bin/sh
# As systemd's own `systemctl`, but it only records its calls.
echo "$@" >> "$CALLS"
exit "${STATUS:-0}"
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "bin" / "systemctl"
    program.parent.mkdir()
    program.write_text(SYSTEMCTL)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    return tmp_path / "calls"


def test_units_are_enabled_updated_and_removed(calls: Path, tmp_path: Path) -> None:
    target = target_in(tmp_path / "p", "  schedule: hourly\n")
    target.is_system = False
    units = tmp_path / "config" / "systemd" / "user"
    assert [change.action for change in target.install()] == ["created", "created"]
    assert calls.read_text().splitlines()[-1] == "--user enable --now headgate-games.timer"
    assert [change.action for change in target.install()] == ["unchanged", "unchanged"]
    assert target.status().is_current
    assert target.status().next_run is not None
    changed = target_in(tmp_path / "p", "  schedule: daily\n")
    changed.is_system = False
    assert not changed.status().is_current
    assert [change.action for change in changed.install()] == ["unchanged", "updated"]
    assert [change.action for change in changed.remove()] == ["removed", "removed"]
    assert "--user disable --now headgate-games.timer headgate-games.service" in calls.read_text()
    assert [*units.iterdir()] == []


def test_nothing_is_written_without_systemd(
    calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATUS", "1")
    target = target_in(tmp_path / "p", "  schedule: hourly\n")
    target.is_system = False
    with pytest.raises(WorkflowError) as caught:
        target.install()
    assert caught.value.code == "scheduler-unavailable"
    assert not target.status().is_installed
