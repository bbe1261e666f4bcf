"""Whether a pipeline can write its lake, and whether its checkpoint and ledger fit together."""

from __future__ import annotations

import tempfile
from pathlib import Path

from headgate.errors import CheckpointError
from headgate.inspect.batch_under_way import batch_under_way
from headgate.inspect.check import Check, fail, ok, tried, warn
from headgate.inspect.current_run import find_current_run
from headgate.inspect.ledger_rows import LedgerRows
from headgate.inspect.own_tables import landed_tables
from headgate.inspect.pending_tables import pending_tables
from headgate.land.checkpoint import Checkpoint
from headgate.land.ledger import Ledger
from headgate.land.resume import CheckpointState, resume
from headgate.pipeline import ChangePipeline, Pipeline


def check_lake(pipeline: Pipeline | ChangePipeline) -> list[Check]:
    return [
        tried("lake", lambda: _writable(pipeline)),
        tried("checkpoint", lambda: _checkpoint(pipeline)),
        tried("waiting tables", lambda: _waiting(pipeline)),
    ]


def _writable(pipeline: Pipeline | ChangePipeline) -> Check:
    lake = Path(pipeline.lake)
    folder = lake
    while not folder.exists():
        folder = folder.parent
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        return fail("lake", f"{folder} cannot be written: {error.strerror}", "change `lake`")
    return ok("lake", f"{lake} can be {'written' if folder == lake else 'made'}")


def _checkpoint(pipeline: Pipeline | ChangePipeline) -> Check:
    run = find_current_run(pipeline)
    if run is not None:
        return ok("checkpoint", f"in use by the run of process {run.pid}")
    progress = Ledger(pipeline.lake, pipeline.ledger, pipeline.name).progress()
    staged = batch_under_way(pipeline, progress.landed) if progress else None
    checkpoint = Checkpoint(pipeline.checkpoint)
    state = CheckpointState(checkpoint.query_id, checkpoint.last_begun, checkpoint.last_committed)
    try:
        found = resume(progress, staged, state, landed_tables(pipeline), replay=False)
    except CheckpointError as error:
        return fail("checkpoint", f"{error.message} ({pipeline.checkpoint})", error.hint)
    if progress is None or progress.landed is None:
        return ok("checkpoint", "nothing has landed yet")
    last = progress.landed - found.first_version
    return ok("checkpoint", f"fits the ledger; batch {last + 1} is next")


def _waiting(pipeline: Pipeline | ChangePipeline) -> Check:
    waiting = pending_tables(LedgerRows(pipeline))
    if not waiting:
        return ok("waiting tables", "none")
    first = waiting[0]
    return warn(
        "waiting tables",
        f"{len(waiting)}, the first is {first.table}: {first.error}",
        "mend the table; the next run takes in what waits",
    )
