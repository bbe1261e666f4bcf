"""cron as the scheduler of a workflow: a line in the crontab of the user."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from headgate.errors import InvalidPipeline, WorkflowError
from headgate.workflow.local import LocalTarget
from headgate.workflow.systemd import no_schedule
from headgate.workflow.target import Change, WorkflowStatus


class CronTarget(LocalTarget):
    """A line in the crontab, between comments by which it is found again."""

    def render(self) -> Mapping[str, str]:
        return {"crontab": self._entry()}

    @property
    def _first(self) -> str:
        return f"# headgate workflow {self.plan.name}: {self.plan.file}"

    @property
    def _last(self) -> str:
        return f"# end of headgate workflow {self.plan.name}"

    def _entry(self) -> str:
        schedule = self.plan.workflow.schedule
        if schedule is None:
            raise no_schedule()
        if schedule.is_continuous:
            raise InvalidPipeline(
                "bad-value",
                "cron cannot keep a continuous workflow running",
                "use --target systemd, or a schedule such as `*/5 * * * *`",
            )
        zone = self.plan.workflow.timezone
        if not _is_zone_of_machine(ZoneInfo(zone)):
            raise InvalidPipeline(
                "bad-value",
                f"cron uses the time zone of this machine, which is not {zone}",
                "use --target systemd, or declare the schedule in the zone of the machine",
            )
        call = [self.headgate, "workflow", "run", self.plan.file, "--skip-if-running", "--quiet"]
        # In a crontab, % is a line break, and so is a line break.
        words = " ".join(map(shlex.quote, call)).replace("%", "\\%")
        if not words.isprintable():
            message = "has characters that a crontab cannot hold"
            raise InvalidPipeline("bad-value", f"the path of the pipeline file {message}")
        return f"{self._first}\n{schedule} {words}\n{self._last}\n"

    def install(self) -> Sequence[Change]:
        """Add the line to the crontab, or replace the one of an earlier installation."""
        entry = self._entry()
        before = self._read()
        others, installed = self._split(before)
        if installed == entry:
            return [Change("line of the crontab", self.plan.name, "unchanged")]
        separator = "" if not others or others.endswith("\n") else "\n"
        self._write(f"{others}{separator}{entry}")
        action = "updated" if installed else "created"
        return [Change("line of the crontab", self.plan.name, action)]

    def status(self) -> WorkflowStatus:
        _, installed = self._split(self._read())
        return WorkflowStatus(
            bool(installed),
            installed == self._entry(),
            tuple(self.journal.runs()),
            self.plan.next_run() if installed else None,
        )

    def remove(self) -> Sequence[Change]:
        """Delete the line from the crontab, and the journal of runs."""
        others, installed = self._split(self._read())
        changes = []
        if installed:
            self._write(others)
            changes.append(Change("line of the crontab", self.plan.name, "removed"))
        return [*changes, *super().remove()]

    def _split(self, crontab: str) -> tuple[str, str]:
        """Return the lines of others, and those of this workflow."""
        first, last = re.escape(self._first), re.escape(self._last)
        own = re.compile(rf"^{first}\n.*?^{last}\n", re.MULTILINE | re.DOTALL)
        found = own.search(crontab)
        return own.sub("", crontab), found[0] if found else ""

    def _read(self) -> str:
        done = self._crontab("-l")
        if done.returncode and "no crontab" not in done.stderr:
            raise _unavailable(done.stderr)
        return done.stdout if done.returncode == 0 else ""

    def _write(self, text: str) -> None:
        done = self._crontab("-", text) if text else self._crontab("-r")
        if done.returncode:
            raise _unavailable(done.stderr)

    def _crontab(self, word: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                ["crontab", word], input=text, capture_output=True, text=True, check=False
            )
        except OSError as error:
            raise _unavailable(str(error.strerror)) from None


def _is_zone_of_machine(zone: ZoneInfo) -> bool:
    """Whether clocks in a zone show the same time as the clock of this machine, all year."""
    now = datetime.now(UTC)
    times = [now + timedelta(days=30 * month) for month in range(12)]
    return all(one.astimezone().utcoffset() == one.astimezone(zone).utcoffset() for one in times)


def _unavailable(message: str) -> WorkflowError:
    lines = message.strip().splitlines() or ["failed"]
    return WorkflowError(
        "scheduler-unavailable",
        f"crontab: {lines[0]}",
        "install cron; `headgate workflow render --target cron` prints the line",
    )
