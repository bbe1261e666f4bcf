"""A lake of change files for tests of merges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import headgate
from headgate.cdc.merge_table import MergePlan
from headgate.cdc.plan import ChangePlan
from headgate.engine.events import Listener, MergeFailed
from headgate.engine.follow_up import FollowUp
from headgate.engine.plan import BatchPlan
from headgate.testing import InProcessLake
from headgate.testing.merge import MergeInProcess


class _MergeOnDisk(MergeInProcess):
    """Merges as for tables that are too large to be merged in memory."""

    def merge_plan(self, log: str) -> MergePlan | None:
        plan = super().merge_plan(log)
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
        merge = MergeInProcess if self.in_memory else _MergeOnDisk
        return [merge(self.pipeline.merge, plan, f"{self.ledger.app}:merge", listener)]

    def run(self) -> headgate.RunResult:
        result = super().run()
        assert not [event for event in self.events if isinstance(event, MergeFailed)]
        return result
