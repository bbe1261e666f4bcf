"""Whether a pipeline can write its lake, and whether what it remembers fits together."""

from __future__ import annotations

import tempfile
from pathlib import Path

from headgate.errors import CheckpointError
from headgate.inspect.batch_under_way import batch_under_way
from headgate.inspect.check import Check, fail, ok, tried, warn
from headgate.inspect.current_run import find_current_run
from headgate.inspect.derived_tables import tables_behind
from headgate.inspect.ledger_rows import LedgerRows
from headgate.inspect.own_tables import landed_tables
from headgate.inspect.pending_tables import pending_tables
from headgate.land.checkpoint import Checkpoint
from headgate.land.ledger import Ledger
from headgate.land.resume import CheckpointState, resume
from headgate.pipeline import ChangePipeline, Pipeline


def check_lake(pipeline: Pipeline | ChangePipeline) -> list[Check]:
    waiting = tried("waiting tables", lambda: _waiting(pipeline))
    if isinstance(pipeline, ChangePipeline):
        return [
            tried("lake", lambda: _writable(pipeline)),
            tried("ledger", lambda: _ledger(pipeline)),
            waiting,
            tried("merged tables", lambda: _behind(pipeline)),
        ]
    return [
        tried("lake", lambda: _writable(pipeline)),
        tried("checkpoint", lambda: _checkpoint(pipeline)),
        waiting,
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


def _ledger(pipeline: ChangePipeline) -> Check:
    """Change files have no checkpoint: all that a run remembers is in the lake."""
    run = find_current_run(pipeline)
    if run is not None:
        return ok("ledger", f"in use by the run of process {run.pid}")
    progress = Ledger(pipeline.lake, pipeline.ledger, pipeline.name).progress()
    there = landed_tables(pipeline)
    if progress is None and there:
        return fail(
            "ledger",
            f"the lake has change logs, such as {there[0]}, but no ledger",
            "restore the lake's ledger, or land into an empty lake",
        )
    if progress is None or progress.landed is None:
        return ok("ledger", "nothing has landed yet")
    return ok("ledger", f"batch {progress.landed + 1} is next")


def _behind(pipeline: ChangePipeline) -> Check:
    behind = tables_behind(pipeline, LedgerRows(pipeline))
    if not behind:
        return ok("merged tables", "have all of their change logs")
    return warn(
        "merged tables",
        f"{len(behind)} behind their change logs, the first is {behind[0]}",
        "headgate run merges what is new",
    )


def _checkpoint(pipeline: Pipeline) -> Check:
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
