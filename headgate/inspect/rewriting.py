"""Whether a run would write all of a table anew to widen a column."""

from __future__ import annotations

from headgate.land.commit_with_delta_rs import DeltaRsCommitter
from headgate.pipeline import Pipeline


def can_rewrite(pipeline: Pipeline, table: str, size: int) -> bool:
    """Whether the committer that a run would take for the table would rewrite it."""
    most = int(pipeline.contract.rewrite_up_to)
    delta_rs = DeltaRsCommitter(pipeline.lake)
    if pipeline.commit == "spark" or (pipeline.commit == "auto" and not delta_rs.can_write(table)):
        return size <= most
    return delta_rs.can_rewrite(table, most)
