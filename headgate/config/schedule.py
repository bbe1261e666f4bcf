"""Schedules: when a workflow runs, as a cron expression or continuously."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Self

from cronsim import CronSim, CronSimError
from pydantic import GetCoreSchemaHandler, ValidationInfo
from pydantic_core import CoreSchema

from headgate.config.units import value_schema
from headgate.errors import InvalidPipeline, shown

CONTINUOUS = "continuous"
_HINT = "write a cron expression of five fields, such as `0 * * * *` (hourly), or `continuous`"
_SHORTHANDS = {
    "hourly": "0 * * * *",
    "daily": "0 0 * * *",
    "weekly": "0 0 * * 0",
    "monthly": "0 0 1 * *",
}
_MINUTES, _HOURS, _DAYS, _MONTHS, _WEEKDAYS = range(5)


@dataclass(frozen=True)
class Schedule:
    """When a workflow runs: `*/10 * * * *`, `hourly`, `continuous`."""

    text: str

    @classmethod
    def parse(cls, text: str) -> Self:
        given = " ".join(text.lower().removeprefix("@").split())
        if given == CONTINUOUS:
            return cls(CONTINUOUS)
        cron = _SHORTHANDS.get(given, given)
        if len(cron.split()) != 5:
            raise InvalidPipeline("bad-value", f"is not a schedule: {shown(text)}", _HINT)
        try:
            parsed = CronSim(cron, datetime(2026, 1, 1))
        except CronSimError as error:
            message = f"is not a schedule: {shown(text)}: {str(error).lower()}"
            raise InvalidPipeline("bad-value", message, _HINT) from None
        days = [*parsed.days, *parsed.weekdays]
        if any(not isinstance(day, int) or day < 0 for day in days):
            message = f"cannot be {shown(text)}: `L`, `W` and `#` are not cron's"
            raise InvalidPipeline("bad-value", message, _HINT)
        return cls(cron)

    @property
    def is_continuous(self) -> bool:
        """Whether the next run begins as soon as one is over."""
        return self.text == CONTINUOUS

    @property
    def names_day_and_weekday(self) -> bool:
        """Whether days are given by date and by weekday, of which cron needs only one to match."""
        fields = self.text.split()
        return not (fields[_DAYS].startswith("*") or fields[_WEEKDAYS].startswith("*"))

    @property
    def minutes(self) -> list[int]:
        return sorted(self._cron().minutes)

    @property
    def hours(self) -> list[int]:
        return sorted(self._cron().hours)

    @property
    def days(self) -> list[int]:
        return sorted(self._cron().days)

    @property
    def months(self) -> list[int]:
        return sorted(self._cron().months)

    @property
    def weekdays(self) -> list[int]:
        """Days of the week, from 0 for Sunday to 6 for Saturday."""
        return sorted({day % 7 for day in self._cron().weekdays if isinstance(day, int)})

    def after(self, time: datetime, zone: tzinfo) -> Iterator[datetime]:
        """Yield the times after another one at which a run begins."""
        if not self.is_continuous:
            yield from CronSim(self.text, time.astimezone(zone))

    def _cron(self) -> CronSim:
        return CronSim(self.text, datetime(2026, 1, 1))

    def __str__(self) -> str:
        return self.text

    @classmethod
    def _read(cls, value: object, info: ValidationInfo) -> Self:
        if isinstance(value, cls):
            return value
        if not isinstance(value, str):
            raise InvalidPipeline("wrong-type", f"needs a schedule, not {shown(value)}", _HINT)
        return cls.parse(value)

    @classmethod
    def __get_pydantic_core_schema__(cls, _: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return value_schema(cls._read)
