"""The time in the shop: made up too, so that the same seed gives the same moments."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta


@dataclass(frozen=True)
class SourceClock:
    """Whole seconds, as in a database's log: many statements share one."""

    began: datetime = datetime(2026, 1, 1, 8, tzinfo=UTC)
    statements_a_second: int = 10

    def at(self, statement: int) -> datetime:
        """When the statement with that number runs."""
        return self.began + timedelta(seconds=statement // self.statements_a_second)
