"""Parquet files that tasks have written and no commit has added yet, and the note of a batch."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, Literal

import pyarrow as pa

from headgate.lake.storage import delete_file, read_file, write_file
from headgate.schema.changes import SchemaChange, change_from_record

OnFail = Literal["warn", "quarantine", "fail"]


@dataclass(frozen=True)
class ExpectationResult:
    """The number of rows that a rule checked, and of those that failed it."""

    table: str
    rule: str
    on_fail: OnFail
    checked: int
    failed: int


def sum_expectations(results: Iterable[ExpectationResult]) -> list[ExpectationResult]:
    """Sum the results of all tasks by table and rule, ordered by table."""
    sums: dict[tuple[str, str, OnFail], ExpectationResult] = {}
    for one in results:
        key = one.table, one.rule, one.on_fail
        known = sums.get(key)
        if known is not None:
            checked, failed = known.checked + one.checked, known.failed + one.failed
            one = replace(one, checked=checked, failed=failed)
        sums[key] = one
    return sorted(sums.values(), key=lambda one: one.table)


@dataclass(frozen=True)
class BlockedSchemaChange:
    """A schema change that the contract does not allow."""

    table: str
    schema_ids: tuple[int, ...]
    """The schema that requires the change, if it has an id."""
    record: Mapping[str, Any]
    """The change in the form of the ledger."""
    rows: int
    """Number of records that carry a value of the change."""

    @property
    def change(self) -> SchemaChange:
        change = change_from_record(self.record)
        assert change is not None
        return change


def sum_blocked(blocked: Iterable[BlockedSchemaChange]) -> list[BlockedSchemaChange]:
    """Sum the rows of all tasks by table and change."""
    sums: dict[tuple[str, tuple[int, ...], SchemaChange], BlockedSchemaChange] = {}
    for one in blocked:
        key = one.table, one.schema_ids, one.change
        known = sums.get(key)
        sums[key] = replace(known, rows=known.rows + one.rows) if known else one
    return list(sums.values())


@dataclass(frozen=True)
class StagedFile:
    """A file with everything that a commit needs to know, so that it is not opened again."""

    table: str
    path: str
    """Relative to the table's folder."""
    size: int
    rows: int
    statistics: str
    """Row count, minima, maxima and null counts, in the form of the Delta log."""
    schema_bytes: bytes
    route: str | None = None
    schema_ids: tuple[int, ...] = ()
    partition: Mapping[str, str] | None = None
    reasons: Mapping[str, int] | None = None
    """Of a quarantine file: number of records by reason."""
    new_schemas: Mapping[str, str] | None = None
    """Columns of schemas that are new to the table, by id."""
    unknown_fields: int = 0
    """Number of rows whose payloads have fields that their schema does not have."""
    blocked: tuple[BlockedSchemaChange, ...] = ()
    """Of a quarantine file: also the blocked changes of tables that got no rows."""
    expectations: tuple[ExpectationResult, ...] = ()
    """Of a quarantine file: also the results of tables that got no rows."""
    source_columns: tuple[str, ...] | None = None
    """Of a change log: the columns of its source, unless it has later changes."""
    lineages: tuple[str, ...] = ()
    """Of a change log: the lineages of its positions, the earliest first."""
    reused: Mapping[str, Sequence[int]] | None = None
    """Of a change log: positions, by source file, of changes whose UUID another change has. Such a
    file does not land: the batch is staged again without them."""

    @property
    def schema(self) -> pa.Schema:
        return _schema(self.schema_bytes)

    @property
    def schemas_by_id(self) -> dict[int, pa.Schema]:
        """The decoded `new_schemas`, the oldest first."""
        schemas = {int(key): _decode(text) for key, text in (self.new_schemas or {}).items()}
        return dict(sorted(schemas.items()))

    def to_json(self) -> str:
        return self._json

    @cached_property
    def _json(self) -> str:
        schema = base64.b64encode(self.schema_bytes).decode()
        parts = {
            "schema_bytes": schema,
            "blocked": [vars(one) for one in self.blocked],
            "expectations": [vars(one) for one in self.expectations],
        }
        return json.dumps({**vars(self), **parts})

    @classmethod
    def from_json(cls, text: str) -> StagedFile:
        record: dict[str, Any] = json.loads(text)
        record["schema_bytes"] = base64.b64decode(record["schema_bytes"])
        record["schema_ids"] = tuple(record["schema_ids"])
        record["lineages"] = tuple(record.get("lineages", ()))
        record.pop("dropped", None)  # of earlier versions
        columns = record.get("source_columns")
        record["source_columns"] = None if columns is None else tuple(columns)
        record["blocked"] = tuple(
            BlockedSchemaChange(**{**one, "schema_ids": tuple(one["schema_ids"])})
            for one in record.get("blocked", ())
        )
        record["expectations"] = tuple(
            ExpectationResult(**one) for one in record.get("expectations", ())
        )
        file = cls(**record)
        file.__dict__["_json"] = text
        return file


def encode_schema(schema: pa.Schema) -> str:
    """Return a schema, with the metadata of its columns, as text."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def _decode(text: str) -> pa.Schema:
    return _schema(base64.b64decode(text))


@lru_cache(maxsize=10_000)
def _schema(encoded: bytes) -> pa.Schema:
    """Decode a schema. Most files of a table have the same one, so it is cached."""
    return pa.ipc.read_schema(pa.py_buffer(encoded))


@dataclass(frozen=True)
class StagedBatch:
    """A batch whose files are all written."""

    version: int
    batch: int
    start: Any
    end: Any
    files: tuple[StagedFile, ...]
    run: int | None = None
    """The run that staged it, which marks the tables that it commits to."""
    source_ids: Mapping[str, str] = field(default_factory=dict)
    """Ids of the topics, or of the table, that start and end count in."""


class NoteFile:
    """A small file beside the tables of a lake, replaced atomically."""

    def __init__(self, lake: str, name: str) -> None:
        self._url = f"{lake}/_staged/{name}"

    def read(self) -> bytes | None:
        try:
            return read_file(self._url)
        except FileNotFoundError:
            return None

    def write(self, content: bytes) -> None:
        write_file(self._url, content)

    def clear(self) -> None:
        delete_file(self._url)


class StagedBatchNote:
    """The most recently staged batch of a pipeline, kept to commit it again after a crash."""

    def __init__(self, lake: str, pipeline: str) -> None:
        self._note = NoteFile(lake, f"{pipeline}.json")

    def read(self) -> StagedBatch | None:
        return self.under_way(None)

    def under_way(self, landed: int | None) -> StagedBatch | None:
        """Return the batch if the ledger does not have it yet; some tables may have it already."""
        content = self._note.read()
        if content is None:
            return None
        first, _, rest = content.partition(b"\n")
        noted = json.loads(first)
        if landed is not None and noted["version"] <= landed:
            return None
        # Earlier versions wrote all of it as one line.
        files = noted.pop("files", None) or rest.decode().split("\n")
        found = tuple(StagedFile.from_json(file) for file in files if file)
        return StagedBatch(**noted, files=found)

    def write(self, staged: StagedBatch) -> None:
        """Write a line about the batch, and one for each of its files."""
        noted = {name: value for name, value in vars(staged).items() if name != "files"}
        lines = [json.dumps(noted), *(file.to_json() for file in staged.files)]
        self._note.write("\n".join(lines).encode())

    def clear(self) -> None:
        self._note.clear()
