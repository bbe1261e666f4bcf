"""Changes from a JSON file."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.envelope.datastream.json_columns import JsonColumns
from headgate.envelope.datastream.json_records import JsonRecord, json_records
from headgate.envelope.datastream.json_text import json_text
from headgate.envelope.datastream.json_told import told_by
from headgate.envelope.datastream.opened_file import (
    MOST_TABLES,
    Changes,
    OpenedFile,
    RejectedChange,
    SourceTable,
    UnreadableFile,
)
from headgate.quarantine.reason import Reason

_MANY_RECORDS = 1_024
_MANY_BYTES = 8 << 20
"""Python's values take many times the place of Arrow's, and go before the next ones come."""


def open_json(content: bytes) -> OpenedFile:
    file = _JsonFile()
    for position, record in enumerate(json_records(content)):
        file.add(position, record)
    return file.opened()


def one_json_record(content: bytes, position: int) -> bytes | None:
    """A file with that record alone; None if there is none."""
    found = next(islice(json_records(content), position, None), None)
    return None if found is None else found.file


@dataclass
class _Table:
    columns: JsonColumns = field(default_factory=JsonColumns)
    metadata: list[pa.RecordBatch] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    waiting: list[JsonRecord] = field(default_factory=list)

    def take_in(self) -> None:
        if self.waiting:
            self.metadata.append(told_by(self.waiting))
            self.columns.add([one.value["payload"] for one in self.waiting if one.value])
            self.waiting = []


class _JsonFile:
    def __init__(self) -> None:
        self._tables: dict[SourceTable, _Table] = {}
        self._rejected: list[RejectedChange] = []
        self._known: dict[tuple[str | None, ...], SourceTable | None] = {}
        self._waiting = self._bytes = 0
        self._wrong: str | None = None
        self._is_json = False

    def add(self, position: int, record: JsonRecord) -> None:
        if not record.is_json:
            self._wrong = self._wrong or record.wrong
        self._is_json = self._is_json or record.is_json
        source = None if record.value is None else self._source(record.value)
        wrong = record.wrong if record.value is None else _missing(record.value, source)
        if wrong or source is None:
            rejected = RejectedChange(
                position, Reason.CHANGE_UNREADABLE, wrong, record.file, source
            )
            self._rejected.append(rejected)
            return
        table = self._tables.get(source)
        if table is None:
            table = self._tables[source] = _Table()
            if len(self._tables) > MOST_TABLES:
                raise UnreadableFile(f"it has changes of more than {MOST_TABLES} tables")
        table.waiting.append(record)
        table.positions.append(position)
        self._waiting += 1
        self._bytes += len(record.content)
        if self._waiting >= _MANY_RECORDS or self._bytes >= _MANY_BYTES:
            self._take_in()

    def opened(self) -> OpenedFile:
        if self._wrong is not None and not self._is_json:
            raise UnreadableFile(f"it is neither Avro nor JSON: {self._wrong}")
        self._take_in()
        changes = [
            Changes(
                source,
                pa.concat_batches(table.metadata),
                table.columns.batch(),
                np.array(table.positions, np.int64),
            )
            for source, table in self._tables.items()
        ]
        return OpenedFile(changes, self._rejected)

    def _take_in(self) -> None:
        for table in self._tables.values():
            table.take_in()
        self._waiting = self._bytes = 0

    def _source(self, value: dict[str, Any]) -> SourceTable | None:
        told = value.get("source_metadata")
        if not isinstance(told, dict):
            return None
        names = (_name(told.get("database")), _name(told.get("schema")), _name(told.get("table")))
        if names not in self._known:
            database, schema, table = names
            self._known[names] = SourceTable(database, schema, table) if table else None
        return self._known[names]


def _name(told: Any) -> str | None:
    if told is None or type(told) is str:
        return told
    return json_text(told) if isinstance(told, bool | int | str) else None


def _missing(value: dict[str, Any], source: SourceTable | None) -> str:
    if source is None:
        return "it names no table"
    return "" if isinstance(value.get("payload"), dict) else "it has no payload"
