"""A moment: in UTC unless it says otherwise; a date is its beginning."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from typing import Annotated

from pydantic import BeforeValidator

from headgate.pipeline.finding import InvalidPipeline
from headgate.pipeline.wording import shown

_HINT = 'it can be a date such as 2026-11-01 or a time such as "2026-11-01 12:00:00"'


def moment_of(value: date | str) -> datetime | None:
    """The moment that a date, a time or a text means; None for a text that means none."""
    match value:
        case datetime():
            return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        case date():
            return datetime.combine(value, time(), UTC)
    try:
        return moment_of(datetime.fromisoformat(value))
    except (ValueError, OverflowError):
        return None


def _read(value: object) -> datetime | None:
    if value is None:
        return None
    if not isinstance(value, date | str):
        raise InvalidPipeline("wrong-type", f"cannot be {shown(value)}", _HINT)
    moment = moment_of(value)
    if moment is None:
        raise InvalidPipeline("bad-value", f"cannot be {shown(value)}", _HINT)
    return moment


Moment = Annotated[datetime | None, BeforeValidator(_read, json_schema_input_type=str | None)]
