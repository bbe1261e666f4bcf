"""A lake of change files for tests of merges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import headgate
from headgate.cdc.merge import MergeFollowUp
from headgate.cdc.merge_table import MergePlan
from headgate.cdc.plan import ChangePlan
from headgate.cdc.source_tables import KnownSource
from headgate.engine.events import Listener, MergeFailed
from headgate.engine.follow_up import FollowUp
from headgate.engine.plan import BatchPlan
from headgate.testing import InProcessLake


class _MergeOnDisk(MergeFollowUp):
    """Merges as for tables that are too large to be merged in memory."""

    def _plan(self, log: str, source: KnownSource) -> MergePlan | None:
        plan = super()._plan(log, source)
        return None if plan is None else replace(plan, in_memory_up_to=0)


class ChangeLake(InProcessLake):
    """A lake of a pipeline named `shop`, in which no merge may fail."""

    def __init__(
        self,
        folder: Path,
        declared: dict[str, Any] | None = None,
        merges: bool = True,
        in_memory: bool = True,
    ) -> None:
        """Declare the pipeline; `in_memory` says whether small tables are merged in memory."""
        keys: dict[str, Any] = {
            "source": headgate.Files(path=str(folder / "landing")),
            "envelope": headgate.Datastream(),
            "lake": str(folder / "lake"),
        }
        super().__init__(headgate.Pipeline(name="shop", **{**keys, **(declared or {})}), folder)
        self.merges = merges
        self.in_memory = in_memory

    def follow_ups(self, plan: BatchPlan, listener: Listener) -> Sequence[FollowUp]:
        if not self.merges:
            return ()
        assert isinstance(plan, ChangePlan)
        merge = MergeFollowUp if self.in_memory else _MergeOnDisk
        app = f"{self.ledger.app}:merge"
        return [merge.of(None, self.committer, self.pipeline, plan, app, listener)]

    def run(self) -> headgate.RunResult:
        result = super().run()
        assert not [event for event in self.events if isinstance(event, MergeFailed)]
        return result
