"""Merges of change logs in this process, instead of in a Spark job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headgate.cdc.merge import merge_plan, merge_tables
from headgate.cdc.merge_table import MergePlan, NeedsSparkMerge, TableMerged
from headgate.cdc.plan import ChangePlan
from headgate.config import Merge
from headgate.engine.events import Listener, MergeFailed
from headgate.engine.follow_up import Followed, TableChanged


class MergeInProcess:
    """Brings merged and history tables up to date after every batch."""

    def __init__(self, merge: Merge, plan: ChangePlan, app: str, listener: Listener) -> None:
        self._merge = merge
        self._plan = plan
        self._app = app
        self._listener = listener
        self._behind = set(plan.known)
        """Logs that may have unmerged changes; at first all, as in a real run."""

    def follow(self, changed: Sequence[TableChanged], batch: int | None) -> Followed:
        self._plan = self._plan.with_committed([file for one in changed for file in one.files])
        self._behind |= {one.table for one in changed}
        merged = list(self._merged())
        self._behind.clear()
        return Followed([result.entry for result in merged])

    def merge_plan(self, log: str) -> MergePlan | None:
        return merge_plan(self._plan, self._merge, self._app, log, self._plan.known[log])

    def _merged(self) -> Iterator[TableMerged]:
        plans = [self.merge_plan(log) for log in sorted(self._behind)]
        for result in merge_tables(plan for plan in plans if plan):
            if isinstance(result, NeedsSparkMerge):
                result = MergeFailed(result.table, "too large to be merged without Spark")
            if isinstance(result, MergeFailed):
                self._listener(result)
            else:
                yield result
