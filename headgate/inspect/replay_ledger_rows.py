"""What the ledger says of replays and drops: they have rows and versions of their own."""

from __future__ import annotations

from headgate.inspect.ledger_rows import LedgerRows
from headgate.land.staged_batch import StagedBatchNote
from headgate.pipeline import AnyPipeline
from headgate.replay.replay_names import name_in_ledger, name_of_files


class ReplayLedgerRows(LedgerRows):
    """Asked as the ledger of the stream is."""

    def __init__(self, pipeline: AnyPipeline) -> None:
        super().__init__(pipeline.model_copy(update={"name": name_in_ledger(pipeline.name)}))
        self._note = StagedBatchNote(pipeline.lake, name_of_files(pipeline.name))

    @property
    def cut_short(self) -> bool:
        """Whether one was begun and not completed, unless it is just being done."""
        newest = self.query("SELECT max(version) AS version FROM ledger WHERE kind = 'batch'")
        landed = newest[0]["version"] if newest else None
        return self._note.under_way(landed) is not None
