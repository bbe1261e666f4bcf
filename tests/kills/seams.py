"""Seams: the points at which tests kill a run.

A seam is a function of the product, and whether to kill before or after a call of it. To add one,
add a line to the group of the workload that reaches it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Seam:
    """A point before or after calls of a function."""

    name: str
    when: Literal["before", "after"]
    function: str
    """Where the product looks the function up: `module:function` or `module:Class.method`."""
    nth: int = 1
    """The call to kill at in `make test`; `make soak` takes any."""


LANDING = (
    Seam("offsets-taken", "before", "headgate.engine.batch:BatchLander.land"),
    Seam("checkpoint-recorded", "after", "headgate.lake.ledger:Ledger.start"),
    Seam("staging", "after", "headgate.engine.stage_table:write_parquet", nth=3),
    Seam("staged", "after", "headgate.engine.batch:BatchLander._stage", nth=2),
    Seam("note-half-written", "before", "headgate.lake.disk:os.replace"),
    Seam("noted", "after", "headgate.lake.staged:StagedBatchNote.write"),
    Seam("before-commit", "before", "headgate.lake.delta_rs:DeltaRsCommitter.commit", nth=4),
    Seam("after-commit", "after", "headgate.lake.delta_rs:DeltaRsCommitter.commit", nth=4),
    Seam("table-created", "after", "headgate.lake.delta_rs:DeltaRsCommitter._create", nth=2),
    Seam("before-entry", "before", "headgate.lake.delta_rs:write_entry", nth=5),
    Seam("after-entry", "after", "headgate.lake.delta_rs:write_entry", nth=5),
    Seam("file-refitted", "after", "headgate.engine.land_table:refit_file"),
    Seam("refitted-original-deleted", "after", "headgate.engine.land_table:delete_staged"),
    Seam("files-rewritten", "after", "headgate.lake.delta_rs:write_parquet"),
    Seam("tables-committed", "after", "headgate.engine.batch:BatchLander._commit"),
    Seam("ledger-file-written", "after", "headgate.lake.ledger:stage_rows", nth=2),
    Seam("before-ledger", "before", "headgate.lake.ledger:Ledger.complete", nth=2),
    Seam("after-ledger", "after", "headgate.lake.ledger:Ledger.complete", nth=2),
    Seam("batch-landed", "after", "headgate.engine.batch:BatchLander.land", nth=2),
    Seam("taken-over", "after", "headgate.lake.ledger:Ledger.take_over"),
    Seam("totals-written", "before", "headgate.lake.delta_rs:DeltaRsCommitter.compact"),
    Seam("ledger-compacted", "after", "headgate.lake.delta_rs:DeltaRsCommitter.compact"),
    Seam("pending-landed", "after", "headgate.engine.batch:BatchLander.land_pending", nth=5),
)
"""Of a batch of records or change files."""

REPLAYING = (
    Seam("replay-staged", "after", "headgate.quarantine.replay:restage"),
    Seam("outcome-noted", "after", "headgate.quarantine.outcome:OutcomeNote.write"),
    Seam("before-marking", "before", "headgate.quarantine.lander:record_outcome"),
    Seam("after-marking", "after", "headgate.quarantine.lander:record_outcome"),
    Seam("outcome-recorded", "before", "headgate.quarantine.outcome:OutcomeNote.clear"),
    Seam("replay-landed", "after", "headgate.quarantine.lander:ReplayLander.land"),
)
"""Of replays and drops."""

MERGING = (
    Seam("tombstones-added", "after", "headgate.cdc.tombstones:Tombstones.add"),
    Seam("merged-columns-added", "after", "headgate.cdc.merge_table:evolve_columns"),
    Seam("merged-table-created", "after", "headgate.cdc.merge_table:replace_rows"),
    Seam("before-merge", "before", "headgate.lake.delta_rs:DeltaRsCommitter.merge", nth=3),
    Seam("files-merged", "after", "headgate.lake.delta_rs:merge_into_files", nth=3),
    Seam("after-merge", "after", "headgate.lake.delta_rs:DeltaRsCommitter.merge", nth=3),
    Seam("between-merged-and-history", "after", "headgate.cdc.merge:merge_table"),
    Seam("between-sources", "after", "headgate.cdc.merge:merge_history"),
    Seam("all-merged", "after", "headgate.cdc.merge:merge_summary"),
)
"""Of merged and history tables."""

DERIVING = (
    Seam("derived-file-written", "after", "headgate.gold.commit:stage_rows"),
    Seam("derived-staged", "before", "headgate.gold.commit:commit_files"),
    Seam("between-derived", "after", "headgate.gold.commit:commit_files", nth=2),
    Seam("all-derived", "after", "headgate.gold.follow:GoldFollowUp.follow"),
)
"""Of derived tables, which need Spark."""

PREDICTING = (
    Seam("predictions-staged", "after", "headgate.models.scores:stage_rows", nth=2),
    Seam("before-predictions", "before", "headgate.models.scores:PredictionTable.commit", nth=2),
    Seam("after-predictions", "after", "headgate.models.scores:PredictionTable.commit", nth=2),
    Seam("all-predicted", "after", "headgate.models.predict:PredictFollowUp.follow", nth=2),
)
"""Of predictions."""

MAINTAINING = (
    Seam("files-combined", "after", "headgate.lake.delta_rs:combine_files", nth=2),
    Seam("retention-set", "before", "headgate.lake.delta_rs:DeltaRsCommitter._combine"),
    Seam("compacted", "after", "headgate.lake.delta_rs:DeltaRsCommitter._combine", nth=2),
    Seam("before-expiry", "before", "headgate.lake.maintain:delete_files", nth=3),
    Seam("expired-files-deleted", "after", "headgate.lake.maintain:delete_files", nth=3),
    Seam("after-expiry", "after", "headgate.lake.maintain:delete_files", nth=4),
)
"""Of maintenance in the background of a run."""

SEAMS = {
    seam.name: seam
    for seam in (*LANDING, *REPLAYING, *MERGING, *DERIVING, *PREDICTING, *MAINTAINING)
}
