from __future__ import annotations

import pickle
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.config import Duration
from headgate.errors import PipelineFileError

CENTURY = 36_500 * 24 * 3600 * 1000


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("500ms", 500),
        ("10s", 10_000),
        ("10 sec", 10_000),
        ("1 second", 1_000),
        ("1.5 s", 1_500),
        ("2 minutes", 120_000),
        ("2 MIN", 120_000),
        ("1h", 3_600_000),
        (" 1 day ", 86_400_000),
        ("3650d", 315_360_000_000),
    ],
)
def test_duration_parses_number_and_unit(text: str, milliseconds: int) -> None:
    assert Duration.parse(text).milliseconds == milliseconds


@pytest.mark.parametrize(
    "text",
    ["", "10", "s", "-1s", "0s", "0.5ms", "1.0001s", "10 parsecs", "40000d", "٣s", "9" * 99 + "s"],
)
def test_invalid_duration_is_rejected(text: str) -> None:
    with pytest.raises(PipelineFileError):
        Duration.parse(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [("1000ms", "1 second"), ("90s", "90 seconds"), ("120s", "2 minutes"), ("24h", "1 day")],
)
def test_duration_shows_its_largest_whole_unit(text: str, shown: str) -> None:
    assert str(Duration.parse(text)) == shown


@given(st.integers(1, CENTURY))
def test_duration_round_trips_as_text(milliseconds: int) -> None:
    duration = Duration(milliseconds=milliseconds)
    assert Duration.parse(str(duration)) == duration
    assert duration.milliseconds == milliseconds


def test_duration_is_a_timedelta() -> None:
    assert Duration.parse("2 minutes") == timedelta(minutes=2)
    assert Duration(minutes=2).total_seconds() == 120
    assert pickle.loads(pickle.dumps(Duration(minutes=2))) == Duration(minutes=2)
