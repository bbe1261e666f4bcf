"""The port between sources and runs: batches, and events such as having caught up."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from headgate.lake.ledger import Ledger, Progress
from headgate.lake.staged import StagedBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_Result = TypeVar("_Result")
POLL_SECONDS = 0.25
"""How long a source waits before it reports that it still has nothing new."""


@dataclass(frozen=True)
class Extent:
    """A batch's number and the part of the source that it covers."""

    batch: int
    start: Any = None
    end: Any = None
    lag: int | None = None
    """Number of records beyond this batch; None if the source cannot report it."""
    source_ids: Mapping[str, str] = field(default_factory=dict)
    """Ids of the topics, or of the table, that start and end count in."""


def continues(end: Any, start: Any) -> bool:
    """Whether a batch may start where another ended: wherever both have a position, it is the same.

    A source can get new partitions, so neither has to have all positions of the other.
    """
    if isinstance(end, dict) and isinstance(start, dict):
        return all(continues(end[key], start[key]) for key in end.keys() & start.keys())
    return end is None or start is None or bool(end == start)


class RunsJobs(Protocol):
    """Runs Spark jobs over the rows of a batch, in the thread that Spark requires.

    A job gets the rows, and the number of tasks to read them with.
    """

    def __call__(self, job: Callable[[DataFrame, int], _Result], /) -> _Result: ...


@dataclass(frozen=True)
class SourceBatch:
    """The rows of one batch, not yet read."""

    extent: Extent
    run: RunsJobs
    new_checkpoint: str | None = None
    """The identity of a checkpoint that begins with this batch."""
    require_same: Callable[[], None] = lambda: None
    """Raises if the rows that were read may be those of another topic or table of the same name."""
    notice_replaced: Callable[[], None] = lambda: None
    """Raises if that is known for sure: a batch may fail because of it."""


@dataclass(frozen=True)
class CaughtUp:
    """Every record that the source has so far was handed over."""


@dataclass(frozen=True)
class Waiting:
    """The source still has nothing new; comes a few times per second."""


@dataclass(frozen=True)
class UnfinishedFiles:
    """Files that end in the middle of a record, and are read once they are complete."""

    paths: tuple[str, ...]


@dataclass(frozen=True)
class SkippedFiles:
    """Entries of the folder that are not read, such as links."""

    reasons: Mapping[str, str]
    """By path."""


@dataclass(frozen=True)
class Recovery:
    """Where a run continues."""

    first_version: int
    """The version of the source's batch 0."""
    next_batch: int | None
    """The batch that an earlier run would have continued with; None for a first run."""
    lands_staged: bool
    """Whether a staged batch must be landed from its note, because the source will not return it
    again."""


class Source(Protocol):
    """Decides what the next batch reads."""

    def recover(self, progress: Progress | None, staged: StagedBatch | None) -> Recovery:
        """Return where to continue, or raise `CheckpointError`. Does not use Spark."""
        ...

    def batches(
        self, spark: SparkSession, ledger: Ledger
    ) -> Generator[SourceBatch | CaughtUp | Waiting | UnfinishedFiles | SkippedFiles]:
        """Yield batches; each must have landed before the next one is requested."""
        ...


class NothingNew:
    """A source from which nothing is read, for runs that only follow what has landed."""

    def recover(self, progress: Progress | None, staged: StagedBatch | None) -> Recovery:
        """Continue as the ledger is; a staged batch is left to the next run that reads."""
        return Recovery(progress.first_version if progress else 0, None, lands_staged=False)

    def batches(
        self, spark: SparkSession, ledger: Ledger
    ) -> Generator[SourceBatch | CaughtUp | Waiting | UnfinishedFiles | SkippedFiles]:
        yield from ()
