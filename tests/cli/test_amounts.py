from __future__ import annotations

from datetime import timedelta

import pytest

from headgate import amounts
from headgate.cli import output


@pytest.mark.parametrize(
    ("passed", "words"),
    [
        ({"seconds": 0.4}, "just now"),
        ({"seconds": -5}, "just now"),
        ({"seconds": 1}, "1 second ago"),
        ({"seconds": 59}, "59 seconds ago"),
        ({"minutes": 2}, "2 minutes ago"),
        ({"hours": 23}, "23 hours ago"),
        ({"days": 400}, "400 days ago"),
    ],
)
def test_ago(passed: dict[str, float], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now = output.now()
    monkeypatch.setattr(output, "now", lambda: now)
    assert output.ago(now - timedelta(**passed)) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.123, "0.12 s"), (3.21, "3.2 s"), (42, "42 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")],
)
def test_duration(seconds: float, words: str) -> None:
    assert amounts.duration(seconds) == words


@pytest.mark.parametrize(
    ("amount", "words"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (4_200_000, "4.2 MB"),
        (7_000_000_000, "7.0 GB"),
        (10**16, "10000.0 TB"),
    ],
)
def test_size(amount: int, words: str) -> None:
    assert amounts.size(amount) == words


def test_counted() -> None:
    assert amounts.counted(1, "batch", "batches") == "1 batch"
    assert amounts.counted(1200, "batch", "batches") == "1,200 batches"
