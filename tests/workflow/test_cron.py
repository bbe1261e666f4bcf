"""A line in a crontab: what it says, and that lines of others stay."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from headgate.errors import InvalidPipeline, WorkflowError
from headgate.workflow.cron import CronTarget
from headgate.workflow.journal import Journal
from tests.workflow.workflows import plan_in

CRONTAB = """\
#!/bin/sh
# As cron's own `crontab`, but for a table of its own.
case "$1" in
  -l) test -e "$TABLE" && cat "$TABLE" || { echo "no crontab for me" >&2; exit 1; } ;;
  -r) rm "$TABLE" ;;
  -) cat > "$TABLE" ;;
esac
"""


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The crontab of the test; that of the user stays as it is."""
    program = tmp_path / "bin" / "crontab"
    program.parent.mkdir()
    program.write_text(CRONTAB)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("TABLE", str(tmp_path / "table"))
    return tmp_path / "table"


def target_in(folder: Path, workflow: str) -> CronTarget:
    return CronTarget(plan_in(folder, workflow), Journal(folder / "journal"), headgate="/bin/hg")


def test_line_is_added_updated_and_removed_and_others_stay(table: Path, tmp_path: Path) -> None:
    table.write_text("@daily backup")
    target = target_in(tmp_path / "p", "  schedule: hourly\n")
    assert [change.action for change in target.install()] == ["created"]
    assert [change.action for change in target.install()] == ["unchanged"]
    file = tmp_path / "p" / "games.yaml"
    line = f"0 * * * * /bin/hg workflow run {file} --skip-if-running --quiet\n"
    assert line in table.read_text()
    assert target.status().is_current
    changed = target_in(tmp_path / "p", "  schedule: daily\n")
    assert not changed.status().is_current
    assert [change.action for change in changed.install()] == ["updated"]
    assert table.read_text().count("workflow run") == 1
    assert changed.status().next_run is not None
    assert [change.action for change in changed.remove()] == ["removed"]
    assert table.read_text() == "@daily backup\n"
    assert not changed.status().is_installed


def test_only_line_leaves_no_crontab(table: Path, tmp_path: Path) -> None:
    target = target_in(tmp_path / "p", "  schedule: hourly\n")
    target.install()
    target.remove()
    assert not table.exists()


def test_hostile_path_is_quoted(table: Path, tmp_path: Path) -> None:
    target = target_in(tmp_path / "a b%c'd", "  schedule: hourly\n")
    (text,) = target.render().values()
    quoted = str(tmp_path / "a b%c'd" / "games.yaml").replace("'", "'\"'\"'").replace("%", "\\%")
    assert f"/bin/hg workflow run '{quoted}'" in text


@pytest.mark.parametrize(
    ("workflow", "reason"),
    [
        ("  retries: 1\n", "no schedule"),
        ("  schedule: continuous\n", "continuous"),
        ("  schedule: hourly\n  timezone: Asia/Kathmandu\n", "time zone"),
    ],
)
def test_schedule_that_cron_does_not_have_is_refused(
    tmp_path: Path, workflow: str, reason: str
) -> None:
    with pytest.raises(InvalidPipeline, match=reason):
        target_in(tmp_path, workflow).render()


def test_missing_cron_is_reported_with_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(WorkflowError) as caught:
        target_in(tmp_path, "  schedule: hourly\n").install()
    assert caught.value.code == "scheduler-unavailable"
