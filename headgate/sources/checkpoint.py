"""Spark's checkpoint of a stream, and whether it agrees with the ledger."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headgate.amounts import counted
from headgate.errors import CheckpointError
from headgate.lake.ledger import Progress


@dataclass(frozen=True)
class CheckpointState:
    """What the checkpoint says of itself."""

    query_id: str | None
    last_begun: int | None
    last_committed: int | None


@dataclass(frozen=True)
class Resume:
    """How the run begins."""

    first_version: int
    """The version of the checkpoint's batch 0."""
    start_anew: bool
    """The ledger does not know this checkpoint yet."""
    by_ledger: bool = False
    """The source is read from where the ledger ends, not from where the pipeline says."""


def resume(
    progress: Progress | None,
    staged: int | None,
    checkpoint: CheckpointState,
    tables_without_ledger: Sequence[str],
    from_ledger: bool,
) -> Resume:
    """Where to go on, or the error that says why not; `staged` is the batch under way."""
    if progress is None:
        if checkpoint.last_committed is not None:
            raise CheckpointError(
                "checkpoint-foreign",
                "the checkpoint has progress, but the lake has no ledger of this pipeline",
                hint="give the pipeline its own checkpoint, or restore the lake's ledger",
            )
        if tables_without_ledger:
            raise CheckpointError(
                "lake-without-ledger",
                f"the lake has tables of this pipeline ({', '.join(tables_without_ledger[:3])}, …)"
                " but no ledger, so what has landed in them is unknown",
                hint="restore the ledger, or use an empty lake folder",
            )
        return Resume(first_version=0, start_anew=True)
    if checkpoint.query_id == progress.query_id:
        return _same_checkpoint(progress, checkpoint)
    known = [version for version in (progress.landed, staged) if version is not None]
    newest = max(known, default=None)
    if newest is None:
        return Resume(first_version=0, start_anew=True)
    if checkpoint.last_committed is not None:
        raise CheckpointError(
            "checkpoint-foreign",
            "the checkpoint belongs to a different stream than the one that filled the lake",
            hint="use the checkpoint recorded in the ledger, or an empty one with --from-ledger",
        )
    if not from_ledger:
        raise CheckpointError(
            "checkpoint-reset",
            f"the lake has {counted(newest + 1, 'batch', 'batches')} of this pipeline, but the "
            "checkpoint is empty",
            hint="restore the checkpoint, or run with --from-ledger to continue where the ledger "
            "ends: nothing is lost and nothing lands twice",
        )
    return Resume(first_version=newest + 1, start_anew=True, by_ledger=True)


def _same_checkpoint(progress: Progress, checkpoint: CheckpointState) -> Resume:
    landed = progress.landed
    last = -1 if landed is None else landed - progress.first_version
    begun = -1 if checkpoint.last_begun is None else checkpoint.last_begun
    if begun < last:
        raise CheckpointError(
            "checkpoint-reset",
            f"the ledger has batch {last} of this checkpoint, but the checkpoint only has "
            f"batch {begun}: it was rolled back",
            hint="restore the newest checkpoint, or empty its folder and run with --from-ledger",
        )
    return Resume(first_version=progress.first_version, start_anew=False)


class Checkpoint:
    """Reads, never writes: the folder is Spark's."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    @property
    def query_id(self) -> str | None:
        """The identity of the stream; a checkpoint made anew has another one."""
        try:
            return str(json.loads((self.folder / "metadata").read_text())["id"])
        except (OSError, ValueError, KeyError):
            return None

    @property
    def last_begun(self) -> int | None:
        return self._newest("offsets")

    @property
    def last_committed(self) -> int | None:
        return self._newest("commits")

    def start_of(self, batch: int) -> Any:
        """Where the source begins in that batch."""
        if batch > 0:
            return self.offsets(batch - 1)
        try:
            text = (self.folder / "sources" / "0" / "0").read_text()
            return json.loads(text[text.index("{") :])
        except (OSError, ValueError):
            return None

    def offsets(self, batch: int) -> Any:
        """Where the source ends in that batch, in the source's own terms."""
        try:
            lines = (self.folder / "offsets" / str(batch)).read_text().splitlines()
            return json.loads(lines[2])
        except (OSError, ValueError, IndexError):
            return None

    def _newest(self, folder: str) -> int | None:
        try:
            names = [path.name for path in (self.folder / folder).iterdir()]
        except OSError:
            return None
        return max((int(name) for name in names if name.isdigit()), default=None)
