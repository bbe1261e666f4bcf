"""Events of a run, each with its text for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headgate.amounts import counted, duration, number, rate
from headgate.lake.staged import ExpectationResult
from headgate.schema.changes import SchemaChange

_MAX_NAMES = 3


class Event:
    """One thing that happened in a run.

    Each kind defines its own text here; views print `text` or `notice` and only match the kinds
    that they count.
    """

    @property
    def text(self) -> str:
        """One line for a log; by default the notice."""
        return ": ".join(self.notice or ())

    @property
    def notice(self) -> tuple[str, str] | None:
        """The subject and what happened; None for routine events that are only counted."""
        return None


@dataclass(frozen=True)
class BatchLanded(Event):
    """All tables of a batch are committed, and so is the ledger."""

    batch: int
    rows: int
    """Rows in silver tables."""
    quarantined: Mapping[str, int]
    """Number of records by reason."""
    tables: int
    new_tables: int
    changes: int
    bytes: int
    seconds: float
    staging_seconds: float
    commit_seconds: float
    lag: int | None = None
    """Records that the source had beyond this batch when it ended, where that is known."""

    @property
    def records(self) -> int:
        """Records of the batch, landed or quarantined."""
        return self.rows + sum(self.quarantined.values())

    @property
    def landing_seconds(self) -> float:
        """Time to stage and commit the records, without deriving or merging."""
        return self.staging_seconds + self.commit_seconds

    @property
    def text(self) -> str:
        quarantined = sum(self.quarantined.values())
        return (
            f"batch {self.batch}: {counted(self.rows, 'record')} into "
            f"{counted(self.tables, 'table')} in {duration(self.landing_seconds)} "
            f"({rate(self.records, self.landing_seconds)})"
            + (f", {number(quarantined)} quarantined" if quarantined else "")
            + (f", {number(self.lag)} behind" if self.lag else "")
        )


@dataclass(frozen=True)
class BatchSkipped(Event):
    """Spark repeated a batch that the ledger has as complete."""

    batch: int

    @property
    def text(self) -> str:
        return f"batch {self.batch}: already landed, skipped"


@dataclass(frozen=True)
class SchemaChanged(Event):
    """A table's columns changed while the stream kept running."""

    batch: int
    table: str
    change: SchemaChange
    schema_ids: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        ids = f" (schema {', '.join(map(str, self.schema_ids))})" if self.schema_ids else ""
        return f"batch {self.batch}: {self.table}: {self.change.summary}{ids}"

    @property
    def notice(self) -> tuple[str, str]:
        return self.table, self.change.summary


@dataclass(frozen=True)
class ExpectationsBroken(Event):
    """Rows broke rules of `expect`; what happened to them is each rule's `on_fail`."""

    batch: int
    rules: tuple[ExpectationResult, ...]

    @property
    def text(self) -> str:
        """The rules that most rows broke, by name."""
        worst = sorted(self.rules, key=lambda one: -one.failed)
        rules = ", ".join(
            f"{one.table} {one.rule} {number(one.failed)} of {number(one.checked)} ({one.on_fail})"
            for one in worst[:_MAX_NAMES]
        )
        return f"batch {self.batch}: rules broken: {rules}{_more(len(worst))}"


@dataclass(frozen=True)
class TableWaits(Event):
    """A table could not be committed; its files are committed with the next batch."""

    batch: int
    table: str
    rows: int
    error: str

    @property
    def text(self) -> str:
        rows = counted(self.rows, "record")
        return f"batch {self.batch}: {self.table} is pending with {rows}: {self.error}"


@dataclass(frozen=True)
class FilesLost(Event):
    """Staged files of a table are gone; the ledger names them, and the rest is committed."""

    batch: int
    table: str
    rows: int
    paths: tuple[str, ...]

    @property
    def text(self) -> str:
        return f"batch {self.batch}: {self.table}: {self.notice[1]}"

    @property
    def notice(self) -> tuple[str, str]:
        files = counted(len(self.paths), "staged file")
        return self.table, f"{counted(self.rows, 'record')} lost: {files} gone, {self.paths[0]}"


@dataclass(frozen=True)
class TablesMerged(Event):
    """Merged and history tables caught up with their change logs."""

    batch: int | None
    """None if the merge was not part of a batch."""
    tables: int
    inserted: int
    updated: int
    deleted: int
    seconds: float
    by_spark: int = 0
    """How many of the tables were too large for a task."""

    @property
    def text(self) -> str:
        spark = f", {self.by_spark} of them by Spark" if self.by_spark else ""
        return (
            f"merged {counted(self.tables, 'table')} in {duration(self.seconds)}: "
            f"{number(self.inserted)} inserted, {number(self.updated)} updated, "
            f"{number(self.deleted)} deleted{spark}"
        )


@dataclass(frozen=True)
class MergeFailed(Event):
    """A table is behind its change log; the next merge retries."""

    table: str
    error: str

    @property
    def notice(self) -> tuple[str, str]:
        return self.table, f"merge failed, will be retried: {self.error}"


@dataclass(frozen=True)
class TableRebuilt(Event):
    """A merged, history or derived table was computed from all of its source again."""

    table: str
    why: str

    @property
    def notice(self) -> tuple[str, str]:
        return self.table, f"rebuilt: {self.why}"


@dataclass(frozen=True)
class GoldDerived(Event):
    """Derived tables caught up with the tables they are derived from."""

    tables: int
    rows: int
    """Groups and rows that were computed."""
    seconds: float

    @property
    def text(self) -> str:
        return (
            f"derived {counted(self.rows, 'row')} in {counted(self.tables, 'table')} "
            f"in {duration(self.seconds)}"
        )


@dataclass(frozen=True)
class GoldFailed(Event):
    """A derived table could not catch up with its sources; the next batch retries."""

    table: str
    error: str

    @property
    def notice(self) -> tuple[str, str]:
        return self.table, f"derivation failed, will be retried: {self.error}"


@dataclass(frozen=True)
class TablesMaintained(Event):
    """Small files of tables were combined, and what no version needs was deleted."""

    tables: int
    files: int
    into: int
    deleted: int
    """Data files and entries of the log."""
    seconds: float

    @property
    def text(self) -> str:
        return (
            f"maintained {counted(self.tables, 'table')}: {counted(self.files, 'file')} combined "
            f"into {number(self.into)}, {number(self.deleted)} deleted "
            f"in {duration(self.seconds)}"
        )


@dataclass(frozen=True)
class MaintenanceFailed(Event):
    """A table could not be maintained; its rows are not affected."""

    table: str
    error: str

    @property
    def notice(self) -> tuple[str, str]:
        return self.table, f"maintenance failed, will be retried: {self.error}"


@dataclass(frozen=True)
class Predicted(Event):
    """New predictions are in their table."""

    table: str
    rows: int
    fallback: int
    """Rows that have the value of the fallback."""
    model: str | None
    seconds: float
    scoring_seconds: float
    """Time to read new rows, compute features and score them, before anything is written."""

    @property
    def text(self) -> str:
        by = self.model if self.model and self.fallback < self.rows else "the fallback"
        some = f", {number(self.fallback)} by the fallback" if 0 < self.fallback < self.rows else ""
        return (
            f"predicted {counted(self.rows, 'row')} of {self.table} by {by}{some} "
            f"in {duration(self.seconds)}"
        )


@dataclass(frozen=True)
class ModelServes(Event):
    """Predictions come from a model that was not used before in this run."""

    table: str
    model: str

    @property
    def notice(self) -> tuple[str, str]:
        return self.table, f"is predicted by {self.model} from now on"


@dataclass(frozen=True)
class PredictionFailed(Event):
    """A model, a query or a topic of a prediction cannot be used; landing goes on."""

    table: str
    error: str
    instead: str = "will be retried"
    """What happens meanwhile."""

    @property
    def notice(self) -> tuple[str, str]:
        return self.table, f"{self.error}; {self.instead}"


@dataclass(frozen=True)
class TrainingStarted(Event):
    """A model is being trained in a process of its own."""

    table: str
    why: str

    @property
    def notice(self) -> tuple[str, str]:
        return self.table, f"training a new model: {self.why}"


@dataclass(frozen=True)
class TablesRegistered(Event):
    """Tables are in the catalog from now on."""

    catalog: str
    tables: tuple[str, ...]

    @property
    def text(self) -> str:
        names = ", ".join(self.tables[:_MAX_NAMES])
        return (
            f"registered {counted(len(self.tables), 'table')} in {self.catalog}: "
            f"{names}{_more(len(self.tables))}"
        )


@dataclass(frozen=True)
class PrivilegesGranted(Event):
    """Privileges on tables are granted in the catalog from now on."""

    catalog: str
    privileges: int
    tables: tuple[str, ...]

    @property
    def text(self) -> str:
        names = ", ".join(self.tables[:_MAX_NAMES])
        return (
            f"granted {counted(self.privileges, 'privilege')} on "
            f"{counted(len(self.tables), 'table')} in {self.catalog}: "
            f"{names}{_more(len(self.tables))}"
        )


@dataclass(frozen=True)
class CatalogFailed(Event):
    """A table could not be registered, a privilege not be granted, or the catalog not be reached;
    landing goes on."""

    subject: str
    error: str
    code: str

    @property
    def notice(self) -> tuple[str, str]:
        return self.subject, f"{self.error} [{self.code}]"


@dataclass(frozen=True)
class WithoutKey(Event):
    """A source table has no key, so its merged table keeps every change as a row."""

    table: str

    @property
    def notice(self) -> tuple[str, str]:
        return self.table, (
            "has no key, so every change is appended; declare a key in "
            "`envelope.datastream.keys` to get current rows"
        )


@dataclass(frozen=True)
class FilesWait(Event):
    """Files that end within a record, which means that they are still being written."""

    paths: tuple[str, ...]

    @property
    def notice(self) -> tuple[str, str]:
        more = f" and {len(self.paths) - 1} more" if len(self.paths) > 1 else ""
        return "still being written", f"{self.paths[0]}{more}"


@dataclass(frozen=True)
class FilesSkipped(Event):
    """Entries of the landing folder that are not read: links, special and unreadable files.

    Each is reported once in a run; one that can be read later is read then.
    """

    reasons: Mapping[str, str]
    """By path."""

    @property
    def notice(self) -> tuple[str, str]:
        path, why = next(iter(self.reasons.items()))
        more = f", and {len(self.reasons) - 1} more" if len(self.reasons) > 1 else ""
        return "not read", f"{path}: {why}{more}"


@dataclass(frozen=True)
class Started(Event):
    """The stream is running."""

    pipeline: str
    lake: str
    resumed_at: int | None
    """The next batch, if earlier runs landed some."""

    @property
    def text(self) -> str:
        resumed = f", resuming at batch {self.resumed_at}" if self.resumed_at else ""
        return f"running {self.pipeline} into {self.lake}{resumed}"


@dataclass(frozen=True)
class Idle(Event):
    """Caught up with the source."""

    @property
    def text(self) -> str:
        return "idle: caught up with the source"


@dataclass(frozen=True)
class Ended(Event):
    """The run has ended."""

    batches: int
    rows: int
    quarantined: int
    stopped: bool
    """By a signal, rather than by itself."""
    tables: frozenset[str] = field(default_factory=frozenset)

    @property
    def text(self) -> str:
        return "stopped" if self.stopped else "done"


def _more(names: int) -> str:
    return f" and {names - _MAX_NAMES} more" if names > _MAX_NAMES else ""


Listener = Callable[[Event], None]
