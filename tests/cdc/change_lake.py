"""A lake of change files for tests of merges."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import headgate
from headgate.cdc.merge import MergeFollowUp
from headgate.cdc.plan import ChangePlan
from headgate.engine.events import Listener, MergeFailed
from headgate.engine.follow_up import FollowUp
from headgate.engine.plan import BatchPlan
from headgate.testing import InProcessLake


class ChangeLake(InProcessLake):
    """A lake of a pipeline named `shop`, in which no merge may fail."""

    def __init__(
        self,
        folder: Path,
        declared: dict[str, Any] | None = None,
        merges: bool = True,
    ) -> None:
        keys: dict[str, Any] = {
            "source": headgate.Files(path=str(folder / "landing")),
            "envelope": headgate.Datastream(),
            "lake": str(folder / "lake"),
        }
        super().__init__(headgate.Pipeline(name="shop", **{**keys, **(declared or {})}), folder)
        self.merges = merges

    def follow_ups(self, plan: BatchPlan, listener: Listener) -> Sequence[FollowUp]:
        if not self.merges:
            return ()
        assert isinstance(plan, ChangePlan)
        app = f"{self.ledger.app}:merge"
        return [MergeFollowUp.of(None, self.committer, self.pipeline, plan, app, listener)]

    def run(self) -> headgate.RunResult:
        result = super().run()
        assert not [event for event in self.events if isinstance(event, MergeFailed)]
        return result
