"""Changes of a pipeline's layout: from one stream to several, one for each shard, or back.

With another number of shards, streams begin where those before have ended, all at the same place
in the source. The ledger records each layout, and runs of earlier ones complete no more batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from time import sleep
from typing import Any

from headgate.config import PipelineConfig
from headgate.config.shards import Shard, Stream
from headgate.errors import CheckpointError, UsageError
from headgate.lake.commit import Committer
from headgate.lake.ledger import Ledger
from headgate.lake.ledger_snapshot import LedgerSnapshot
from headgate.lake.run_lock import run_lock, running_holder
from headgate.lake.staged import StagedBatchNote
from headgate.lake.streams import Layout
from headgate.lake.tables import CommitConflict

_MAX_ATTEMPTS = 120
_SECONDS = 0.5


def open_stream(
    pipeline: PipelineConfig, shard: Shard | None, committer: Committer | None = None
) -> Stream:
    """Return the stream of a run; change the layout if the pipeline declares another one now.

    The committer is the one that the pipeline declares, by default delta-rs.
    """
    _require_declared(pipeline, shard)
    for _ in range(_MAX_ATTEMPTS):
        if _newest(pipeline).shards == pipeline.shards or _has_changed(pipeline, committer):
            return current_streams(pipeline)[shard.number - 1 if shard else 0]
        sleep(_SECONDS)  # Another shard, which has started at the same time, changes it.
    raise CheckpointError(
        "pipeline-in-use",
        f"another process has been changing the number of shards of {pipeline.name} for a minute",
        hint="run again once it has ended",
        where=pipeline.lake,
    )


def _has_changed(pipeline: PipelineConfig, committer: Committer | None) -> bool:
    """Change the layout; return False if another process is doing that."""
    with ExitStack() as locks:
        try:
            lock = locks.enter_context(
                run_lock(pipeline.lake, f"{pipeline.name}.layout", pipeline.name)
            )
        except CheckpointError:
            return False
        before = _newest(pipeline)
        if before.shards != pipeline.shards:
            try:
                _change(pipeline, before, str(lock.holder), committer)
            except CommitConflict:
                return False
        return True


def current_streams(pipeline: PipelineConfig) -> list[Stream]:
    """Return the streams that land a pipeline now."""
    layout = _newest(pipeline)
    names = layout.streams(pipeline.name)
    shards = [Shard(number, len(names)) for number in range(1, len(names) + 1)]
    return [
        Stream(name, shard if len(names) > 1 else None, layout.start, layout.source_ids)
        for name, shard in zip(names, shards, strict=True)
    ]


@contextmanager
def lock_all(pipeline: PipelineConfig) -> Iterator[str]:
    """Hold the locks of all streams of a pipeline; yield who holds them."""
    with ExitStack() as locks:
        held = [
            locks.enter_context(run_lock(pipeline.lake, stream, pipeline.name))
            for stream in (one.name for one in current_streams(pipeline))
        ]
        yield str(held[0].holder)


def _require_declared(pipeline: PipelineConfig, shard: Shard | None) -> None:
    if pipeline.shards > 1 and shard is None:
        raise UsageError(
            "bad-argument",
            f"{pipeline.name} has {pipeline.shards} shards, each run by a process of its own",
            hint=f"run all of them, from `--shard 1/{pipeline.shards}` to "
            f"`--shard {pipeline.shards}/{pipeline.shards}`",
        )
    if shard is not None and shard.of != pipeline.shards:
        raise UsageError(
            "bad-argument",
            f"--shard {shard}: {pipeline.name} declares `shards: {pipeline.shards}`",
            hint="change `shards` in the pipeline file first, then all runs",
        )


def _newest(pipeline: PipelineConfig) -> Layout:
    return LedgerSnapshot.open(pipeline.lake, pipeline.ledger, pipeline.name).layouts[-1]


def _change(
    pipeline: PipelineConfig, before: Layout, holder: str, committer: Committer | None
) -> None:
    """Have the streams of a layout end, and record the layout that follows."""
    ledgers = {
        stream: Ledger(pipeline.lake, pipeline.ledger, stream, committer)
        for stream in (pipeline.name, *before.streams(pipeline.name))
    }
    ends = [
        _end(pipeline, before, stream, ledgers[stream], holder)
        for stream in before.streams(pipeline.name)
    ]
    ids: dict[str, str] = {}
    for _, found in ends:
        ids = {**found, **ids}
    if any(end != ends[0][0] or ids != {**ids, **found} for end, found in ends):
        raise CheckpointError(
            "shards-apart",
            f"the {before.shards} shards of {pipeline.name} end at different places in the source",
            hint=f"with `shards: {before.shards}` in the pipeline file, run each of them with "
            "--once while no new records arrive, then change the number",
            where=pipeline.lake,
        )
    layout = Layout(before.number + 1, pipeline.shards, ends[0][0], ids)
    ledgers[pipeline.name].change_layout(layout)


def _end(
    pipeline: PipelineConfig, layout: Layout, stream: str, ledger: Ledger, holder: str
) -> tuple[Any, Mapping[str, str]]:
    """Keep runs of a stream from landing more, and return where it ends in the source.

    With the ids of the topics, or of the table, that this counts in.
    """
    running = running_holder(pipeline.lake, stream)
    if running is not None:
        raise CheckpointError(
            "pipeline-in-use",
            f"pipeline {pipeline.name} is running with {_shards(layout)}: {running}",
            hint="stop all of its runs before you change the number of shards",
            where=pipeline.lake,
        )
    if ledger.progress() is None:
        return layout.start, layout.source_ids
    ledger.take_over(holder)
    progress = ledger.progress()
    assert progress is not None
    note = StagedBatchNote(pipeline.lake, stream)
    if note.under_way(progress.landed) is not None or progress.pending:
        raise CheckpointError(
            "shards-unfinished",
            f"a batch of {pipeline.name} with {_shards(layout)} is not finished",
            hint=f"run it once more with `shards: {layout.shards}` in the pipeline file and "
            "--once, then change the number",
            where=pipeline.lake,
        )
    if progress.landed is None:
        return layout.start, layout.source_ids
    return progress.ended_at, progress.source_ids


def _shards(layout: Layout) -> str:
    return "one stream" if layout.shards == 1 else f"{layout.shards} shards"
