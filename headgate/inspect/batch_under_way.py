"""The batch that is staged and not yet in the ledger, if there is one."""

from __future__ import annotations

from headgate.land.staged_batch import StagedBatchNote
from headgate.pipeline import AnyPipeline


def batch_under_way(pipeline: AnyPipeline, landed: int | None) -> int | None:
    """Its version. It is being committed now, or a run ended before it was."""
    staged = StagedBatchNote(pipeline.lake, pipeline.name).under_way(landed)
    return staged.version if staged else None
