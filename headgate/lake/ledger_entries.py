"""The rows of the ledger: its columns, and one type per kind of row with the columns it fills."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import pyarrow as pa

from headgate.lake.staged import ExpectationResult, OnFail, StagedFile
from headgate.schema.changes import SchemaChange, change_from_record

MAX_ERROR = 1000
"""Characters of an error message that the ledger keeps."""


def _column(name: str, type: pa.DataType, description: str) -> pa.Field:
    """Return a column whose description Delta keeps as its comment."""
    return pa.field(name, type, metadata={"comment": description})


_COUNTS = pa.map_(pa.string(), pa.int64())

LEDGER = pa.schema(
    [
        _column("pipeline", pa.string(), "Pipeline; replays of its quarantine add `:replay`"),
        _column("kind", pa.string(), "Kind of row"),
        _column("version", pa.int64(), "Batch, counted over all checkpoints of the pipeline"),
        _column("batch", pa.int64(), "Batch, counted from the start of its checkpoint"),
        _column(
            "last_version", pa.int64(), "Of totals: the newest batch among those that they sum up"
        ),
        _column("batches", pa.int64(), "Of totals: number of batches"),
        _column("at", pa.timestamp("us", "UTC"), "When the row was written"),
        _column("table", pa.string(), "Table that the row is about"),
        _column("route", pa.string(), "Route of the table's records"),
        _column(
            "rows",
            pa.int64(),
            "Rows landed, merged, computed, predicted, staged, lost, blocked, or out of quarantine",
        ),
        _column("bytes", pa.int64(), "Size of the files landed"),
        _column("files", pa.int64(), "Files landed"),
        _column("table_version", pa.int64(), "Delta version of the table after the commit"),
        _column("error", pa.string(), f"Why it failed, up to {MAX_ERROR} characters"),
        _column("query_id", pa.string(), "Id of the streaming query, from its checkpoint"),
        _column("run", pa.int64(), "Number of the run, counted over all runs of the pipeline"),
        _column("holder", pa.string(), "Process of the run: user, host and process id"),
        _column("shards", pa.int64(), "Of a layout: number of streams"),
        _column("source_start", pa.string(), "Where the batch starts in the source, as JSON"),
        _column("source_end", pa.string(), "Where the batch ends in the source, as JSON"),
        _column(
            "source_ids",
            pa.map_(pa.string(), pa.string()),
            "Ids of the topics, or of the Delta table, that these positions count in",
        ),
        _column("schema_ids", pa.list_(pa.int64()), "Schemas of the records, by id"),
        _column(
            "lineages",
            pa.list_(pa.string()),
            "Series of database logs of the changes, the earliest first",
        ),
        _column("discarded", _COUNTS, "Rows landed without the value of a field, by field"),
        _column("unknown_fields", pa.int64(), "Rows with fields that are not in their schema"),
        _column("change", pa.string(), "Kind of schema change, such as `AddColumn`"),
        _column("column", pa.string(), "Column that changed; the table for changes of a table"),
        _column("outcome", pa.string(), "What the contract made of the change"),
        _column("type", pa.string(), "Type that the schema has"),
        _column("was", pa.string(), "Type of the column before, or its name if it was renamed"),
        _column("into", pa.string(), "Column that gets the values instead"),
        _column("columns", pa.int64(), "Number of columns of a new table"),
        _column("staged_version", pa.int64(), "Batch that staged the file"),
        _column("staged_file", pa.string(), "File to commit with the next batch, as JSON"),
        _column("log", pa.string(), "Change log that the table was merged from"),
        _column("log_version", pa.int64(), "Delta version of the change log, merged up to here"),
        _column("engine", pa.string(), "What merged: `delta-rs` or `spark`"),
        _column("inserted", pa.int64(), "Rows inserted by the merge"),
        _column("updated", pa.int64(), "Rows updated by the merge"),
        _column("deleted", pa.int64(), "Rows deleted by the merge"),
        _column("rule", pa.string(), "Expectation, by name"),
        _column("on_fail", pa.string(), "What happens to rows that fail the expectation"),
        _column("checked", pa.int64(), "Rows checked by the expectation"),
        _column("failed", pa.int64(), "Rows that failed the expectation"),
        _column("state", pa.string(), "State of records that left the quarantine"),
        _column("taken", pa.int64(), "Records taken from the quarantine"),
        _column("remaining", _COUNTS, "Records that stay in quarantine, by reason"),
        _column("filter", pa.map_(pa.string(), pa.string()), "Which records were selected"),
        _column("model", pa.string(), "Model that predicted, with its version; null for none"),
        _column("fallback", pa.int64(), "Rows predicted by the fallback"),
        _column("truths", pa.int64(), "Recent predictions whose truth is known"),
        _column("mae", pa.float64(), "Mean absolute error of these predictions"),
        _column("trained_mae", pa.float64(), "Mean absolute error of the model when trained"),
        _column("catalog", pa.string(), "Catalog that the table is registered in"),
        _column(
            "grants",
            pa.list_(pa.string()),
            "Privileges on the table that Headgate has granted, such as `SELECT to analysts`",
        ),
    ]
)


class Kind(StrEnum):
    """Kinds of rows in the ledger; each has its own type of entry."""

    LAYOUT = "layout"
    START = "start"
    RUN = "run"
    TABLE = "table"
    SCHEMA = "schema"
    PENDING = "pending"
    LOST = "lost"
    BATCH = "batch"
    GOLD = "gold"
    MERGED = "merged"
    EXPECTATION = "expectation"
    QUARANTINE = "quarantine"
    PREDICTION = "prediction"
    ACCURACY = "accuracy"
    TRAINING = "training"
    CATALOG = "catalog"
    GRANTS = "grants"


@dataclass(frozen=True)
class Entry:
    """A row of the ledger without the columns that the ledger fills itself."""

    kind: ClassVar[Kind]


@dataclass(frozen=True)
class EntryOfTable(Entry):
    """A row that is about one table."""

    table: str


@dataclass(frozen=True)
class StartEntry(Entry):
    """A checkpoint used for the first time; `version` is that of its batch 0."""

    kind = Kind.START
    query_id: str


@dataclass(frozen=True)
class RunEntry(Entry):
    """A run that took over the pipeline; batches of earlier runs can no longer complete."""

    kind = Kind.RUN
    run: int
    holder: str


@dataclass(frozen=True)
class LayoutEntry(Entry):
    """Another number of shards: from here on, their streams land the pipeline.

    The batch of the row is the number of the layout.
    """

    kind = Kind.LAYOUT
    shards: int
    source_end: Any
    """Where the streams before have ended in the source, and these begin."""
    source_ids: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TableEntry(EntryOfTable):
    """Rows that landed in a table."""

    kind = Kind.TABLE
    rows: int
    table_version: int
    bytes: int = 0
    files: int = 0
    route: str | None = None
    schema_ids: tuple[int, ...] = ()
    lineages: tuple[str, ...] = ()
    discarded: Mapping[str, int] = field(default_factory=dict)
    unknown_fields: int = 0


@dataclass(frozen=True)
class SchemaEntry(EntryOfTable):
    """A schema change, applied or blocked by the contract."""

    kind = Kind.SCHEMA
    change: str
    column: str
    outcome: str
    type: str | None = None
    was: str | None = None
    into: str | None = None
    columns: int | None = None
    schema_ids: tuple[int, ...] = ()
    route: str | None = None
    rows: int | None = None
    """Records that had such a value, if the change was blocked."""

    @classmethod
    def of(
        cls,
        table: str,
        change: SchemaChange,
        schema_ids: tuple[int, ...] = (),
        route: str | None = None,
        rows: int | None = None,
    ) -> SchemaEntry:
        record = {**change.as_record(), "outcome": change.outcome.value}
        return cls(table, **record, schema_ids=schema_ids, route=route, rows=rows)

    @property
    def schema_change(self) -> SchemaChange | None:
        """The change as a value; None for a kind that a newer version wrote."""
        return change_from_record(
            {name: value for name, value in vars(self).items() if value is not None}
        )


@dataclass(frozen=True)
class PendingEntry(EntryOfTable):
    """A staged file whose table could not be committed."""

    kind = Kind.PENDING
    rows: int
    staged_version: int
    staged_file: StagedFile
    error: str


@dataclass(frozen=True)
class LostEntry(EntryOfTable):
    """A staged file that will never be committed: it is gone, or a user has dropped it."""

    kind = Kind.LOST
    rows: int
    staged_version: int
    staged_file: StagedFile
    error: str


@dataclass(frozen=True)
class BatchEntry(Entry):
    """A complete batch, and the part of the source that it covers."""

    kind = Kind.BATCH
    rows: int
    source_start: Any = None
    source_end: Any = None
    source_ids: Mapping[str, str] = field(default_factory=dict)
    """Ids of the topics, or of the table, that start and end count in."""


@dataclass(frozen=True)
class GoldEntry(EntryOfTable):
    """A derived table that was updated, or the error that prevented it.

    `table` is a template if its declaration failed as a whole.
    """

    kind = Kind.GOLD
    rows: int
    table_version: int | None
    error: str | None = None


@dataclass(frozen=True)
class MergeEntry(EntryOfTable):
    """A merged or history table that was updated from its change log, or the error that prevented
    it."""

    kind = Kind.MERGED
    rows: int
    table_version: int | None
    log: str
    log_version: int | None
    engine: str | None
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    error: str | None = None


@dataclass(frozen=True)
class ExpectationEntry(EntryOfTable):
    """Rows of one table, checked by one expectation."""

    kind = Kind.EXPECTATION
    rule: str
    on_fail: OnFail
    checked: int
    failed: int

    @classmethod
    def of(cls, result: ExpectationResult) -> ExpectationEntry:
        return cls(result.table, result.rule, result.on_fail, result.checked, result.failed)


@dataclass(frozen=True)
class QuarantineEntry(EntryOfTable):
    """Records that were replayed or dropped from the quarantine."""

    kind = Kind.QUARANTINE
    rows: int
    table_version: int
    state: str
    taken: int
    remaining: Mapping[str, int] = field(default_factory=dict)
    filter: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PredictionEntry(EntryOfTable):
    """Predictions that were written to a table, or the error that kept a model from predicting.

    With an error, the rows are those of the last good model, or of the fallback.
    """

    kind = Kind.PREDICTION
    rows: int
    table_version: int | None
    model: str | None
    fallback: int = 0
    error: str | None = None


@dataclass(frozen=True)
class AccuracyEntry(EntryOfTable):
    """How far recent predictions of a table were from the truth."""

    kind = Kind.ACCURACY
    model: str | None
    truths: int
    mae: float
    trained_mae: float | None = None


@dataclass(frozen=True)
class TrainingEntry(EntryOfTable):
    """A training that a run has started for the model of a table, or why it failed."""

    kind = Kind.TRAINING
    error: str | None = None


@dataclass(frozen=True)
class CatalogEntry(EntryOfTable):
    """A table that is registered in a catalog, or why it is not."""

    kind = Kind.CATALOG
    catalog: str
    error: str | None = None


@dataclass(frozen=True)
class GrantsEntry(EntryOfTable):
    """All privileges that Headgate has granted on a table, and why others were refused."""

    kind = Kind.GRANTS
    catalog: str
    grants: tuple[str, ...] = ()
    error: str | None = None


EntryType = TypeVar("EntryType", bound=Entry)
OfTable = TypeVar("OfTable", bound=EntryOfTable)


@dataclass(frozen=True)
class LedgerRow(Generic[EntryType]):
    """An entry, and when and by which batch it was recorded."""

    pipeline: str
    version: int
    batch: int
    at: datetime
    entry: EntryType


ENTRY_TYPES: tuple[type[Entry], ...] = (
    LayoutEntry,
    StartEntry,
    RunEntry,
    TableEntry,
    SchemaEntry,
    PendingEntry,
    LostEntry,
    BatchEntry,
    GoldEntry,
    MergeEntry,
    ExpectationEntry,
    QuarantineEntry,
    PredictionEntry,
    AccuracyEntry,
    TrainingEntry,
    CatalogEntry,
    GrantsEntry,
)


class _Codec(NamedTuple):
    """How the values of a column are stored."""

    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


_LIST = _Codec(lambda values: list(values) or None, lambda stored: tuple(stored or ()))
_MAP = _Codec(
    lambda values: list(values.items()) or None,
    lambda stored: dict(stored or ()),
)
_JSON = _Codec(
    lambda value: None if value is None else json.dumps(value),
    lambda stored: None if stored is None else json.loads(stored),
)
_ERROR = _Codec(lambda text: text and text[:MAX_ERROR], lambda stored: stored)
_AS_IS = _Codec(lambda value: value, lambda stored: stored)
_CODECS = {
    "error": _ERROR,
    "source_start": _JSON,
    "source_end": _JSON,
    "source_ids": _MAP,
    "schema_ids": _LIST,
    "lineages": _LIST,
    "grants": _LIST,
    "discarded": _MAP,
    "staged_file": _Codec(StagedFile.to_json, StagedFile.from_json),
    "remaining": _MAP,
    "filter": _MAP,
}


def encode_entry(entry: Entry) -> dict[str, Any]:
    """Return the columns that an entry fills."""
    return {
        name: _encodable(_CODECS.get(name, _AS_IS).encode(value))
        for name, value in vars(entry).items()
    }


def decode_entry(kind: type[EntryType], row: Mapping[str, Any]) -> EntryType:
    """Return the entry of a row, from the columns of its kind."""
    return kind(**{name: _CODECS.get(name, _AS_IS).decode(row[name]) for name in columns_of(kind)})


def columns_of(kind: type[Entry]) -> tuple[str, ...]:
    return tuple(one.name for one in fields(kind))


def _encodable(value: Any) -> Any:
    """Escape lone surrogates, which undecodable file names have and UTF-8 cannot hold: nothing in
    an error message may keep a batch from completing."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, list | tuple):
        return type(value)(map(_encodable, value))
    return value
