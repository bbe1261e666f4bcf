"""Spark's checkpoint of a stream, and its comparison with the ledger."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headgate.amounts import counted
from headgate.errors import CheckpointError, HeadgateError
from headgate.lake.ledger import Progress
from headgate.lake.storage import list_files, move_folder, read_file, write_file


@dataclass(frozen=True)
class CheckpointState:
    """The identity and the progress that a checkpoint records."""

    query_id: str | None
    last_begun: int | None
    last_committed: int | None
    has_staged_batch: bool = True
    """Whether the batch in progress, if there is one, ends where the checkpoint ends it."""


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
    replaced: HeadgateError | None = None,
) -> Resume:
    """Return where to continue, or raise; `staged` is the batch in progress.

    `replaced` is the error for a source whose positions count in something that is gone.
    """
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
        if replaced is not None and not from_ledger:
            raise replaced
        return Resume(first_version=0, new_checkpoint=True)
    is_same = checkpoint.query_id == progress.query_id
    known = [version for version in (progress.landed, staged) if version is not None]
    newest = max(known, default=None)
    if not is_same and checkpoint.last_committed is not None:
        raise CheckpointError(
            "checkpoint-foreign",
            "the checkpoint belongs to a different stream than the one that filled the lake",
            hint="use the checkpoint recorded in the ledger, or an empty one with --from-ledger",
        )
    problem: HeadgateError | None
    problem = _mismatch(progress, checkpoint) if is_same else _reset(newest)
    problem = problem or replaced
    if problem is not None and not from_ledger:
        raise problem
    if problem is None and is_same:
        return Resume(progress.first_version, new_checkpoint=False)
    if newest is None:
        return Resume(first_version=0, new_checkpoint=True)
    return Resume(first_version=newest + 1, new_checkpoint=True, from_ledger=True)


_CONTINUE = "run with --from-ledger to continue where the ledger ends, with a new checkpoint"


def _reset(newest: int | None) -> CheckpointError | None:
    """Return why a new checkpoint cannot be used without further ado."""
    if newest is None:
        return None
    return CheckpointError(
        "checkpoint-reset",
        f"the lake has {counted(newest + 1, 'batch', 'batches')} of this pipeline, but the "
        "checkpoint is empty",
        hint=f"restore the checkpoint, or {_CONTINUE}: nothing is lost and nothing lands twice",
    )


def _mismatch(progress: Progress, checkpoint: CheckpointState) -> CheckpointError | None:
    """Return how the ledger's own checkpoint differs from it, if one of them was put back."""
    last = -1 if progress.landed is None else progress.landed - progress.first_version
    begun = -1 if checkpoint.last_begun is None else checkpoint.last_begun
    committed = -1 if checkpoint.last_committed is None else checkpoint.last_committed
    if begun < last:
        return CheckpointError(
            "checkpoint-reset",
            f"the ledger has batch {last} of this checkpoint, but the checkpoint only has "
            f"batch {begun}: it was rolled back",
            hint=f"restore the newest checkpoint, or {_CONTINUE}",
        )
    if not checkpoint.has_staged_batch:
        return CheckpointError(
            "checkpoint-foreign",
            f"batch {last + 1} was staged with another checkpoint, which ends it elsewhere",
            hint=f"{_CONTINUE}: the staged batch lands first",
        )
    completed = max(committed, begun - 1)
    if completed > last:
        return CheckpointError(
            "lake-behind",
            f"the checkpoint has completed batch {completed}, but the ledger ends at batch {last}: "
            "the lake was put back to an older copy",
            hint="restore the newest copy of the lake, or run with --from-ledger to land again "
            "what is missing, as far as the source still has it",
        )
    return None


_SOURCE_IDS = "source_ids.json"
"""A file of ours beside those of Spark."""


class Checkpoint:
    """A view of the checkpoint folder, which Spark writes."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    @property
    def query_id(self) -> str | None:
        """The identity of the stream; a recreated checkpoint has a different one."""
        try:
            return str(json.loads(self._read("metadata"))["id"])
        except (OSError, ValueError, KeyError):
            return None

    @property
    def last_begun(self) -> int | None:
        return self._newest("offsets")

    @property
    def last_committed(self) -> int | None:
        return self._newest("commits")

    @property
    def source_ids(self) -> Mapping[str, str] | None:
        """Ids of the topics, or of the table, that its first offsets count in, if recorded."""
        try:
            return dict(json.loads(self._read(_SOURCE_IDS)))
        except (OSError, ValueError):
            return None

    def record_source(self, ids: Mapping[str, str]) -> None:
        """Record what the first offsets count in, before Spark chooses them."""
        write_file(f"{self.folder}/{_SOURCE_IDS}", json.dumps(ids).encode())

    def set_aside(self) -> None:
        """Rename the folder, if there is one, to make room for a new checkpoint."""
        if self.query_id is None:
            return
        move_folder(self.folder, f"{self.folder}.{self.query_id}")

    def start_of(self, batch: int) -> Any:
        """Return the offsets at which a batch starts."""
        if batch > 0:
            return self.offsets(batch - 1)
        try:
            text = self._read("sources/0/0")
            return json.loads(text[text.index("{") :])
        except (OSError, ValueError):
            return None

    def offsets(self, batch: int) -> Any:
        """Return the offsets at which a batch ends, in the source's own format."""
        try:
            lines = self._read(f"offsets/{batch}").splitlines()
            return json.loads(lines[2])
        except (OSError, ValueError, IndexError):
            return None

    def _newest(self, folder: str) -> int | None:
        names = list_files(f"{self.folder}/{folder}")
        return max((int(name) for name in names if name.isdigit()), default=None)

    def _read(self, path: str) -> str:
        return read_file(f"{self.folder}/{path}").decode()
