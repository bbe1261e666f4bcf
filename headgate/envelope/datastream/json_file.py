"""Changes from a JSON file."""

from __future__ import annotations

from collections.abc import Collection, Iterator
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
from headgate.schema.pause_collection import pause_collection

_Names = tuple[str | None, str | None, str]
"""Of a database, a schema and a table."""

_MANY_RECORDS = 1_024
_MANY_BYTES = 8 << 20
"""Python's values take many times the place of Arrow's, and go before the next ones come."""


def open_json(content: bytes) -> OpenedFile:
    """The changes; UnreadableFile or UnfinishedFile if there are none to be had."""
    file = _JsonFile()
    with pause_collection():
        for position, record in enumerate(json_records(content)):
            file.add(position, record)
        return file.opened()


def json_records_alone(content: bytes, positions: Collection[int]) -> Iterator[tuple[int, bytes]]:
    """Of the records at these positions, each as a file of its own."""
    wanted, last = set(positions), max(positions, default=-1)
    for position, record in enumerate(islice(json_records(content), last + 1)):
        if position in wanted:
            yield position, record.file


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
        self._tables: dict[_Names, _Table] = {}
        self._rejected: list[RejectedChange] = []
        self._waiting = self._bytes = 0
        self._wrong = ""
        self._is_json = False

    def add(self, position: int, record: JsonRecord) -> None:
        value = record.value
        if value is None:
            self._wrong = self._wrong or record.wrong
            self._is_json = self._is_json or record.is_json
            self._reject(position, record, record.wrong)
            return
        self._is_json = True
        told = value.get("source_metadata")
        names = _names(told) if isinstance(told, dict) else None
        if names is None:
            self._reject(position, record, "it names no table")
        elif not isinstance(value.get("payload"), dict):
            self._reject(position, record, "it has no payload", SourceTable(*names))
        else:
            table = self._tables.get(names) or self._new_table(names)
            table.waiting.append(record)
            table.positions.append(position)
            self._waiting += 1
            self._bytes += len(record.content)
            if self._waiting >= _MANY_RECORDS or self._bytes >= _MANY_BYTES:
                self._take_in()

    def opened(self) -> OpenedFile:
        if self._wrong and not self._is_json:
            raise UnreadableFile(f"it is neither Avro nor JSON: {self._wrong}")
        self._take_in()
        changes = [
            Changes(
                SourceTable(*names),
                pa.concat_batches(table.metadata),
                table.columns.batch(),
                np.array(table.positions, np.int64),
            )
            for names, table in self._tables.items()
        ]
        return OpenedFile(changes, self._rejected)

    def _take_in(self) -> None:
        for table in self._tables.values():
            table.take_in()
        self._waiting = self._bytes = 0

    def _new_table(self, names: _Names) -> _Table:
        if len(self._tables) == MOST_TABLES:
            raise UnreadableFile(f"it has changes of more than {MOST_TABLES} tables")
        self._tables[names] = _Table()
        return self._tables[names]

    def _reject(
        self, position: int, record: JsonRecord, wrong: str, source: SourceTable | None = None
    ) -> None:
        reason = Reason.CHANGE_UNREADABLE
        self._rejected.append(RejectedChange(position, reason, wrong, record.file, source))


def _names(told: dict[str, Any]) -> _Names | None:
    table = _name(told.get("table"))
    return (_name(told.get("database")), _name(told.get("schema")), table) if table else None


def _name(told: Any) -> str | None:
    if told is None or type(told) is str:
        return told
    return json_text(told) if isinstance(told, bool | int | str) else None
