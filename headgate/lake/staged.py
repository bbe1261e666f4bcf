"""A Parquet file that an executor wrote and that no commit names yet."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from headgate.schema.changes import SchemaChange, change_from_record

OnFail = Literal["warn", "quarantine", "fail"]


@dataclass(frozen=True)
class Checked:
    """How many rows a rule was asked of, and how many of them broke it."""

    table: str
    rule: str
    on_fail: OnFail
    checked: int
    failed: int


def rules_added_up(counts: Iterable[Checked]) -> list[Checked]:
    """Each rule once, with the rows of all tasks, in the order of the tables' names."""
    sums: dict[tuple[str, str, OnFail], Checked] = {}
    for one in counts:
        key = one.table, one.rule, one.on_fail
        known = sums.get(key)
        if known is not None:
            checked, failed = known.checked + one.checked, known.failed + one.failed
            one = replace(one, checked=checked, failed=failed)
        sums[key] = one
    return sorted(sums.values(), key=lambda one: one.table)


@dataclass(frozen=True)
class Withheld:
    """A change that a schema asked for in vain, and how many records had such a value."""

    table: str
    schema_ids: tuple[int, ...]
    """The schema that asked, where it has a number."""
    record: Mapping[str, Any]
    """The change, as the ledger has it."""
    rows: int

    @property
    def change(self) -> SchemaChange:
        change = change_from_record(self.record)
        assert change is not None
        return change


def added_up(withheld: Iterable[Withheld]) -> list[Withheld]:
    """Each change once, with the records of all tasks."""
    sums: dict[tuple[str, tuple[int, ...], SchemaChange], Withheld] = {}
    for one in withheld:
        key = one.table, one.schema_ids, one.change
        known = sums.get(key)
        sums[key] = replace(known, rows=known.rows + one.rows) if known else one
    return list(sums.values())


@dataclass(frozen=True)
class StagedFile:
    """All that a commit needs to know of a file, so that nobody has to open it again."""

    table: str
    path: str
    """Relative to the table's folder."""
    size: int
    rows: int
    statistics: str
    """Row count, minima, maxima and null counts, as Delta's log has them."""
    schema_bytes: bytes
    route: str | None = None
    schema_ids: tuple[int, ...] = ()
    partition: Mapping[str, str] | None = None
    reasons: Mapping[str, int] | None = None
    """In quarantine: how many records for which reason."""
    new_schemas: Mapping[str, str] | None = None
    """Columns of the schemas that the table has not met before, by id."""
    unknown_fields: int = 0
    """Rows whose payloads had fields that their own schema does not have."""
    withheld: tuple[Withheld, ...] = ()
    """What the contract kept out of this table, or of those whose records are in quarantine."""
    expectations: tuple[Checked, ...] = ()
    """How rows fared by the rules of this table, or of those whose records are in quarantine."""
    dropped: tuple[str, ...] = ()
    """Columns of the table that its newest rows are known to have no more."""
    lineages: tuple[str, ...] = ()
    """Of changes: the series of logs in which their positions count, the earliest first."""

    @property
    def schema(self) -> pa.Schema:
        return _schema(self.schema_bytes)

    @property
    def met(self) -> dict[int, pa.Schema]:
        """The new schemas by id, the oldest first."""
        known = {int(one): _read(columns) for one, columns in (self.new_schemas or {}).items()}
        return dict(sorted(known.items()))

    def to_json(self) -> str:
        schema = base64.b64encode(self.schema_bytes).decode()
        parts = {
            "schema_bytes": schema,
            "withheld": [vars(one) for one in self.withheld],
            "expectations": [vars(one) for one in self.expectations],
        }
        return json.dumps({**vars(self), **parts})

    @classmethod
    def from_json(cls, text: str) -> StagedFile:
        record: dict[str, Any] = json.loads(text)
        record["schema_bytes"] = base64.b64decode(record["schema_bytes"])
        record["schema_ids"] = tuple(record["schema_ids"])
        record["lineages"] = tuple(record.get("lineages", ()))
        record["dropped"] = tuple(record.get("dropped", ()))
        record["withheld"] = tuple(
            Withheld(**{**one, "schema_ids": tuple(one["schema_ids"])})
            for one in record.get("withheld", ())
        )
        record["expectations"] = tuple(Checked(**one) for one in record.get("expectations", ()))
        return cls(**record)


def written(schema: pa.Schema) -> str:
    """Columns with what they remember, as text."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def _read(columns: str) -> pa.Schema:
    return _schema(base64.b64decode(columns))


@lru_cache(maxsize=10_000)
def _schema(written: bytes) -> pa.Schema:
    """Files of a table mostly have the same columns."""
    return pa.ipc.read_schema(pa.py_buffer(written))


@dataclass(frozen=True)
class StagedBatch:
    """A batch that is staged whole."""

    version: int
    batch: int
    start: Any
    end: Any
    files: tuple[StagedFile, ...]


class NoteFile:
    """A small file beside the tables of a lake, replaced as a whole."""

    def __init__(self, lake: str, name: str) -> None:
        self._path = Path(lake, "_staged", name)

    def read(self) -> bytes | None:
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return None

    def write(self, content: bytes) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self._path.with_suffix(".part")
        unfinished.write_bytes(content)
        os.replace(unfinished, self._path)

    def clear(self) -> None:
        self._path.unlink(missing_ok=True)


class StagedBatchNote:
    """Holds the batch of a pipeline that was staged last."""

    def __init__(self, lake: str, pipeline: str) -> None:
        self._note = NoteFile(lake, f"{pipeline}.json")

    def read(self) -> StagedBatch | None:
        content = self._note.read()
        if content is None:
            return None
        noted = json.loads(content)
        files = tuple(StagedFile.from_json(file) for file in noted.pop("files"))
        return StagedBatch(**noted, files=files)

    def under_way(self, landed: int | None) -> StagedBatch | None:
        """The noted batch, unless the ledger has it: its tables may have it in part."""
        staged = self.read()
        return staged if staged and (landed is None or staged.version > landed) else None

    def write(self, staged: StagedBatch) -> None:
        noted = {**vars(staged), "files": [file.to_json() for file in staged.files]}
        self._note.write(json.dumps(noted).encode())

    def clear(self) -> None:
        self._note.clear()
