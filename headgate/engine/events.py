"""What happens while a pipeline runs, as values: the terminal, logs and tests see the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headgate.lake.staged import Checked
from headgate.schema.changes import SchemaChange


@dataclass(frozen=True)
class BatchLanded:
    """All tables of a batch are committed, and so is the ledger."""

    batch: int
    rows: int
    """Rows in silver tables."""
    quarantined: Mapping[str, int]
    """How many for which reason."""
    tables: int
    new_tables: int
    changes: int
    bytes: int
    seconds: float
    staging_seconds: float
    commit_seconds: float
    lag: int | None = None
    """Records that the source had beyond this batch when it ended, where it can tell."""

    @property
    def records(self) -> int:
        """Records of the batch, landed or quarantined."""
        return self.rows + sum(self.quarantined.values())

    @property
    def landing_seconds(self) -> float:
        """Time to stage and commit the records, without deriving or merging."""
        return self.staging_seconds + self.commit_seconds


@dataclass(frozen=True)
class BatchSkipped:
    """Spark gave a batch again that the ledger has complete."""

    batch: int


@dataclass(frozen=True)
class SchemaChanged:
    """A table's columns changed; the stream went on."""

    batch: int
    table: str
    change: SchemaChange
    schema_ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class ExpectationsBroken:
    """Rows broke rules of `expect`; those that are for the quarantine are there."""

    batch: int
    rules: tuple[Checked, ...]


@dataclass(frozen=True)
class TableWaits:
    """A table could not be committed; its files go in with the next batch."""

    batch: int
    table: str
    rows: int
    error: str


@dataclass(frozen=True)
class TablesMerged:
    """Merged and history tables followed their change logs."""

    batch: int | None
    """None where it was not part of a batch."""
    tables: int
    inserted: int
    updated: int
    deleted: int
    seconds: float
    by_spark: int = 0
    """How many of the tables were too large for a task."""


@dataclass(frozen=True)
class MergeFailed:
    """A table is behind its change log; the next merge tries again."""

    table: str
    error: str


@dataclass(frozen=True)
class GoldDerived:
    """Derived tables followed the tables that they are derived from."""

    tables: int
    rows: int
    """Groups and rows that were computed."""
    seconds: float


@dataclass(frozen=True)
class GoldFailed:
    """A derived table could not be brought up to its sources; the next batch tries again."""

    table: str
    error: str


@dataclass(frozen=True)
class WithoutKey:
    """Nothing tells the rows of a source table apart: all of its changes are kept as rows."""

    table: str

    @property
    def told(self) -> str:
        return (
            "has no key: every change is appended; name one under `envelope.datastream.keys` "
            "to have its current rows"
        )


@dataclass(frozen=True)
class FilesWait:
    """Files that end in the middle of a record: somebody still writes them."""

    paths: tuple[str, ...]


@dataclass(frozen=True)
class Started:
    """The stream runs."""

    pipeline: str
    lake: str
    resumed_at: int | None
    """The next batch, where there were some before."""


@dataclass(frozen=True)
class Idle:
    """Caught up with the source."""


@dataclass(frozen=True)
class Ended:
    """The run is over, and how."""

    batches: int
    rows: int
    quarantined: int
    stopped: bool
    """By a person or the system, rather than by itself."""
    tables: frozenset[str] = field(default_factory=frozenset)


Event = (
    BatchLanded
    | BatchSkipped
    | SchemaChanged
    | ExpectationsBroken
    | TableWaits
    | TablesMerged
    | MergeFailed
    | GoldDerived
    | GoldFailed
    | WithoutKey
    | FilesWait
    | Started
    | Idle
    | Ended
)
Listener = Callable[[Event], None]
