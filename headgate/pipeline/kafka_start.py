"""Where in the topics the first run begins."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from typing import Annotated, Literal

from pydantic import BeforeValidator

from headgate.pipeline.finding import InvalidPipeline
from headgate.pipeline.moment import moment_of
from headgate.pipeline.wording import did_you_mean, shown

_HINT = 'it can be `earliest`, `latest`, a time such as "2026-11-01 12:00:00", or offsets'
_OFFSETS_HINT = "write offsets by topic and partition: `{games: {0: 12, 1: -2}}`"

Offsets = Mapping[str, Mapping[int, int]]


def _read_start(value: object) -> str | datetime | Offsets:
    match value:
        case "earliest" | "latest":
            return str(value)
        case date() | str():
            return _read_time(value)
        case Mapping():
            return {_read_topic(topic): _read_partitions(each) for topic, each in value.items()}
        case _:
            raise InvalidPipeline("wrong-type", f"cannot be {shown(value)}", _HINT)


def _read_time(written: date | str) -> datetime:
    if moment := moment_of(written):
        return moment
    question = did_you_mean(str(written), ("earliest", "latest"))
    raise InvalidPipeline("bad-value", f"cannot be {shown(written)}", question or _HINT)


def _read_topic(topic: object) -> str:
    if isinstance(topic, str):
        return topic
    raise InvalidPipeline("wrong-type", f"needs topics, not {shown(topic)}", _OFFSETS_HINT)


def _read_partitions(written: object) -> Mapping[int, int]:
    if not isinstance(written, Mapping) or not written:
        raise InvalidPipeline("wrong-type", "needs partitions under each topic", _OFFSETS_HINT)
    for partition, offset in written.items():
        if type(partition) is not int or type(offset) is not int:
            raise InvalidPipeline("wrong-type", "needs whole numbers as offsets", _OFFSETS_HINT)
        if partition < 0 or offset < -2:
            raise InvalidPipeline(
                "bad-value",
                f"cannot begin in partition {partition} at {offset}",
                "offsets count from 0; -2 means the earliest and -1 the latest",
            )
    return dict(written)


Start = Annotated[
    Literal["earliest", "latest"] | datetime | Offsets,
    BeforeValidator(_read_start, json_schema_input_type=str | dict[str, dict[str, int]]),
]
"""`earliest`, `latest`, a moment (UTC unless it says otherwise), or offsets of every partition.

In offsets, -2 stands for the earliest record and -1 for the latest.
"""
