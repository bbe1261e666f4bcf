"""The streams of a pipeline, and the names under which commits are marked as theirs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_SUFFIX = re.compile("[.:]")
"""What separates the name of a pipeline from that of a stream, or of replays."""


def pipeline_of(name: str) -> str:
    """Return the pipeline that a stream, or replays, belong to."""
    return _SUFFIX.split(name)[0]


def replay_name(pipeline: str) -> str:
    """Return the name under which replays of a pipeline's quarantine are recorded."""
    return f"{pipeline}:replay"


def app_id(pipeline: str) -> str:
    """Return the application id of a pipeline's transactions in all its tables."""
    return f"headgate:{pipeline}"


def run_app(app: str) -> str:
    """Return the application id of the marks that number the runs of a pipeline."""
    return f"{app}:run"


def layout_app(app: str) -> str:
    """Return the application id of the marks that number the layouts of a pipeline."""
    return f"{app}:layout"


def totals_app(app: str) -> str:
    """Return the application id of the mark at the newest totals."""
    return f"{app}:totals"


def followed_app(app: str) -> str:
    """Return the application id of the mark at the newest batch that follow-ups have followed."""
    return f"{app}:followed"


@dataclass(frozen=True)
class Layout:
    """The streams of a pipeline, from one change of their number to the next."""

    number: int
    shards: int
    start: Any = None
    """Where its streams begin in the source; None for the `start` of the source."""
    source_ids: Mapping[str, str] = field(default_factory=dict)
    """Ids of the topics, or of the table, that the start counts in."""

    def streams(self, pipeline: str) -> list[str]:
        """Return the names of its streams, in the order of the shards."""
        if self.number == 0:
            return [pipeline]
        return [
            f"{pipeline}.{self.number}.{one}of{self.shards}" for one in range(1, self.shards + 1)
        ]
