"""systemd as the scheduler of a workflow: a service, and a timer that starts it."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from headgate.config import Secret
from headgate.config.schedule import Schedule
from headgate.errors import InvalidPipeline, WorkflowError
from headgate.workflow.local import LocalTarget
from headgate.workflow.target import Change, WorkflowStatus

_WEEKDAYS = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")
_PLAIN = re.compile(r"[\w@%+=:,./-]+", re.ASCII)


class SystemdTarget(LocalTarget):
    """Units of systemd: of the system for root, otherwise of the user."""

    is_system: bool = os.geteuid() == 0

    @property
    def unit(self) -> str:
        """The name of the units, without their suffix."""
        return f"headgate-{self.plan.name}"

    @property
    def folder(self) -> Path:
        """The folder of the units."""
        if self.is_system:
            return Path("/etc/systemd/system")
        config = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
        return Path(config) / "systemd" / "user"

    @property
    def environment_file(self) -> Path:
        """The file with the environment variables that secrets refer to; the reader writes it."""
        if self.is_system:
            return Path("/etc/headgate") / f"{self.plan.name}.env"
        config = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
        return Path(config) / "headgate" / f"{self.plan.name}.env"

    def render(self) -> Mapping[str, str]:
        files = {f"{self.unit}.service": self._service()}
        schedule = self.plan.workflow.schedule
        if schedule is not None and not schedule.is_continuous:
            files[f"{self.unit}.timer"] = self._timer(schedule)
        return files

    def _service(self) -> str:
        is_continuous = self.plan.workflow.is_continuous
        wanted = "multi-user.target" if self.is_system else "default.target"
        call = [self.headgate, "workflow", "run", self.plan.file]
        needs_variables = any(
            secret.kind == "env"
            for secret in [*self.plan.pipeline.secrets, *self.plan.workflow.secrets]
            if isinstance(secret, Secret)
        )
        lines = [
            "[Unit]",
            f"Description=Headgate workflow {self.plan.name}",
            "Wants=network-online.target",
            "After=network-online.target",
            "",
            "[Service]",
            f"Type={'exec' if is_continuous else 'oneshot'}",
            # A path here is not unquoted.
            f"WorkingDirectory={self.plan.folder.replace('%', '%%')}",
            f"ExecStart={' '.join(map(_word, call))}",
            # The workflow stops its steps itself; they finish their batches.
            "KillMode=mixed",
            "TimeoutStopSec=120",
        ]
        if needs_variables:
            lines.append(f"EnvironmentFile={self.environment_file}")
        if is_continuous:
            wait = self.plan.workflow.retry_wait.total_seconds()
            lines += ["Restart=always", f"RestartSec={wait:g}"]
            lines += ["", "[Install]", f"WantedBy={wanted}"]
        return "\n".join(lines) + "\n"

    def _timer(self, schedule: Schedule) -> str:
        lines = [
            "[Unit]",
            f"Description=Schedule of the Headgate workflow {self.plan.name}",
            "",
            "[Timer]",
            *(
                f"OnCalendar={one} {self.plan.workflow.timezone}"
                for one in calendar_events(schedule)
            ),
            # A run that was missed while the machine was off is made up for.
            "Persistent=true",
            "",
            "[Install]",
            "WantedBy=timers.target",
        ]
        return "\n".join(lines) + "\n"

    def install(self) -> Sequence[Change]:
        """Write the units, and enable them."""
        files = self.render()
        if self.plan.workflow.schedule is None:
            raise no_schedule()
        self._systemctl("daemon-reload")  # first, to leave no files without systemd
        self.folder.mkdir(parents=True, exist_ok=True)
        changes = []
        for name, text in files.items():
            path = self.folder / name
            before = path.read_text() if path.exists() else None
            action = "created" if before is None else "updated"
            changes.append(Change("unit", str(path), "unchanged" if before == text else action))
            if before != text:
                path.write_text(text)
        self._systemctl("daemon-reload")
        self._systemctl("enable", "--now", self._started)
        return changes

    def status(self) -> WorkflowStatus:
        installed = {
            name: (self.folder / name).read_text()
            for name in self.render()
            if (self.folder / name).exists()
        }
        is_installed = bool(installed)
        return WorkflowStatus(
            is_installed,
            installed == self.render(),
            tuple(self.journal.runs()),
            self.plan.next_run() if is_installed else None,
        )

    def remove(self) -> Sequence[Change]:
        """Disable and delete the units, and delete the journal of runs."""
        paths = [self.folder / f"{self.unit}.{kind}" for kind in ("timer", "service")]
        found = [path for path in paths if path.exists()]
        # A unit that is not enabled any more, or no systemd, is no reason to leave files.
        with suppress(WorkflowError):
            self._systemctl("disable", "--now", *(path.name for path in found))
        for path in found:
            path.unlink()
        with suppress(WorkflowError):
            self._systemctl("daemon-reload")
        return [*(Change("unit", str(path), "removed") for path in found), *super().remove()]

    @property
    def _started(self) -> str:
        is_continuous = self.plan.workflow.is_continuous
        return f"{self.unit}.{'service' if is_continuous else 'timer'}"

    def _systemctl(self, *words: str) -> None:
        call = ["systemctl", *(() if self.is_system else ("--user",)), *words]
        try:
            done = subprocess.run(call, capture_output=True, text=True, check=False)
        except OSError as error:
            raise _unavailable(f"systemctl: {error.strerror}") from None
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
            raise _unavailable(f"systemctl {words[0]}: {lines[0]}")


def no_schedule() -> InvalidPipeline:
    """Return the error for a workflow that a scheduler cannot start."""
    return InvalidPipeline(
        "missing-key",
        "the workflow has no schedule",
        "declare when it runs: `workflow: {schedule: hourly}`",
    )


def calendar_events(schedule: Schedule) -> list[str]:
    """Return a cron schedule as systemd writes it: `Mon,Tue *-*-* 06,18:00:00`."""
    hours = _list(schedule.hours, 24)
    minutes = _list(schedule.minutes, 60)
    time = f"{hours}:{minutes}:00"
    months = _list(schedule.months, 12)
    days = _list(schedule.days, 31)
    weekdays = ""
    if len(schedule.weekdays) < len(_WEEKDAYS):
        weekdays = ",".join(_WEEKDAYS[day] for day in schedule.weekdays) + " "
    if schedule.names_day_and_weekday:
        return [f"*-{months}-{days} {time}", f"{weekdays}*-{months}-* {time}"]
    return [f"{weekdays}*-{months}-{days} {time}"]


def _list(values: Sequence[int], count: int) -> str:
    return "*" if len(values) == count else ",".join(f"{value:02}" for value in values)


def _word(word: str) -> str:
    """Quote a word of a command in a unit."""
    word = word.replace("%", "%%").replace("$", "$$")
    if _PLAIN.fullmatch(word):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _unavailable(message: str) -> WorkflowError:
    return WorkflowError(
        "scheduler-unavailable",
        message,
        "`headgate workflow render --target systemd` prints the units; `headgate workflow run` "
        "needs no scheduler",
    )
