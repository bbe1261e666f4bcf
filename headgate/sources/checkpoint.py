"""Spark's checkpoint of a stream, and its comparison with the ledger."""

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
    """The identity and the progress that a checkpoint records."""

    query_id: str | None
    last_begun: int | None
    last_committed: int | None


@dataclass(frozen=True)
class Resume:
    """Where and how a run continues."""

    first_version: int
    """The version of the checkpoint's batch 0."""
    new_checkpoint: bool
    """Whether the ledger has no batch of this checkpoint yet."""
    from_ledger: bool = False
    """Whether to read the source from where the ledger ends, instead of from `start`."""


def resume(
    progress: Progress | None,
    staged: int | None,
    checkpoint: CheckpointState,
    tables_without_ledger: Sequence[str],
    from_ledger: bool,
) -> Resume:
    """Return where to continue, or raise `CheckpointError`; `staged` is the batch in progress."""
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
        return Resume(first_version=0, new_checkpoint=True)
    if checkpoint.query_id == progress.query_id:
        return _same_checkpoint(progress, checkpoint)
    known = [version for version in (progress.landed, staged) if version is not None]
    newest = max(known, default=None)
    if newest is None:
        return Resume(first_version=0, new_checkpoint=True)
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
    return Resume(first_version=newest + 1, new_checkpoint=True, from_ledger=True)


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
    return Resume(first_version=progress.first_version, new_checkpoint=False)


class Checkpoint:
    """A read-only view of the checkpoint folder, which Spark writes."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    @property
    def query_id(self) -> str | None:
        """The identity of the stream; a recreated checkpoint has a different one."""
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
        """Return the offsets at which a batch starts."""
        if batch > 0:
            return self.offsets(batch - 1)
        try:
            text = (self.folder / "sources" / "0" / "0").read_text()
            return json.loads(text[text.index("{") :])
        except (OSError, ValueError):
            return None

    def offsets(self, batch: int) -> Any:
        """Return the offsets at which a batch ends, in the source's own format."""
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
