"""Filters on records in quarantine, the same for every command."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Self

from headgate.engine.quarantine_table import QuarantineState
from headgate.errors import UsageError, did_you_mean, listed
from headgate.reasons import Reason

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OFFSETS = re.compile(
    r"(?P<topic>.+):(?P<partition>[0-9]{1,9}):(?P<first>[0-9]{1,18})(?:-(?P<last>[0-9]{1,18}))?"
)


@dataclass(frozen=True)
class OffsetRange:
    """Consecutive records of one partition; both ends are included."""

    topic: str
    partition: int
    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> Self:
        found = _OFFSETS.fullmatch(text)
        if found is None:
            raise UsageError(
                "bad-argument",
                f"`{text}` is not a range of offsets",
                hint="write topic:partition:offset or topic:partition:from-to: games:0:12-40",
            )
        first = int(found["first"])
        last = first if found["last"] is None else int(found["last"])
        if last < first:
            raise UsageError("bad-argument", f"`{text}` ends before it begins")
        return cls(found["topic"], int(found["partition"]), first, last)

    def __str__(self) -> str:
        end = "" if self.last == self.first else f"-{self.last}"
        return f"{self.topic}:{self.partition}:{self.first}{end}"


@dataclass(frozen=True)
class QuarantineFilter:
    """Conditions that must all hold; without any, every open record matches."""

    reason: str | None = None
    route: str | None = None
    """A route, or the table of a route."""
    since: datetime | None = None
    """Quarantined at this time or later; UTC if it has no time zone."""
    until: datetime | None = None
    """Quarantined before this time."""
    offsets: OffsetRange | None = None
    file: str | None = None
    """Path of the change file, or the end of the path."""
    state: QuarantineState | None = QuarantineState.OPEN
    """None for records in any state."""

    def condition(self, routes: Collection[str] = ()) -> str:
        """Return the SQL condition; `routes` are the routes of the table that `route` names."""
        conditions = []
        if self.state is not None:
            conditions.append(f"state = {_literal(self.state.value)}")
        if self.reason is not None:
            conditions.append(f"reason = {_literal(self.reason)}")
        if self.route is not None:
            named = ", ".join(_literal(route) for route in sorted({self.route, *routes}))
            conditions.append(f"route IN ({named})")
        if self.since is not None:
            conditions.append(f"_at >= {_literal(self.since)}")
        if self.until is not None:
            conditions.append(f"_at < {_literal(self.until)}")
        if self.offsets is not None:
            topic, partition = _literal(self.offsets.topic), self.offsets.partition
            first, last = self.offsets.first, self.offsets.last
            conditions.append(f"_topic = {topic} AND _partition = {partition}")
            conditions.append(f"_offset BETWEEN {first} AND {last}")
        if self.file is not None:
            conditions.append(in_file(self.file))
        return " AND ".join(conditions) or "true"

    @property
    def is_narrow(self) -> bool:
        """Return whether there is any condition besides the state."""
        conditions = (self.reason, self.route, self.since, self.until, self.offsets, self.file)
        return any(condition is not None for condition in conditions)

    def as_record(self) -> dict[str, str]:
        """Return the conditions as the ledger stores them."""
        conditions = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: str(value) for name, value in conditions.items() if value is not None}


def parse_reason(text: str | None) -> str | None:
    """Return the reason, or raise if records cannot have it."""
    known = [each.value for each in Reason]
    if text is not None and text not in known:
        hint = did_you_mean(text, known) or f"use one of {listed(known)}"
        raise UsageError("bad-argument", f"unknown reason `{text}`", hint=hint)
    return text


def parse_state(text: str | None) -> QuarantineState | None:
    """Return the state, `open` by default; None for `all`."""
    if text == "all":
        return None
    known = [each.value for each in QuarantineState]
    if text is not None and text not in known:
        hint = did_you_mean(text, [*known, "all"]) or f"use one of {listed([*known, 'all'])}"
        raise UsageError("bad-argument", f"unknown state `{text}`", hint=hint)
    return QuarantineState.OPEN if text is None else QuarantineState(text)


def parse_time(name: str, time: str | datetime | None) -> datetime | None:
    """Return a time, in UTC unless it has a zone; `name` is what the user calls it."""
    if isinstance(time, str):
        try:
            time = datetime.fromisoformat(time)
        except ValueError:
            raise UsageError(
                "bad-argument",
                f"{name}: `{time}` is not a time",
                hint="write it like 2026-11-01, '2026-11-01 12:00' or 2026-11-01T12:00+01:00",
            ) from None
    return time.replace(tzinfo=UTC) if time is not None and time.tzinfo is None else time


def in_file(path: str) -> str:
    """Return the SQL condition for a file with this path, or with a path that ends with it."""
    whole, end = _literal(path), _literal(f"/{path.lstrip('/')}")
    return f"(_file = {whole} OR ends_with(_file, {end}))"


def _literal(value: str | datetime) -> str:
    """Return a SQL literal, with quotes escaped."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    timestamp = value if value.tzinfo else value.replace(tzinfo=UTC)
    micros = (timestamp - _EPOCH) // timedelta(microseconds=1)
    return f"""arrow_cast({micros}, 'Timestamp(Microsecond, Some("UTC"))')"""
