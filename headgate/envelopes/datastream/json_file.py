"""Changes from a JSON file."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from enum import Enum
from itertools import chain, islice
from operator import itemgetter
from types import NoneType
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.envelopes.datastream.columns import LOG_COLUMN_NAMES, METADATA
from headgate.envelopes.datastream.json_records import JsonRecord, Written, json_records, json_text
from headgate.envelopes.datastream.metadata import COLUMNS, More, Place, add_more, metadata_columns
from headgate.envelopes.datastream.opened import (
    MOST_CELLS,
    MOST_TABLES,
    Changes,
    OpenedFile,
    RejectedChange,
    SourceTable,
    UnreadableFile,
)
from headgate.envelopes.opened import pause_collection
from headgate.formats.avro.columns import MOST_FIELDS, WIDEST_DECIMAL
from headgate.formats.decoder import only_length
from headgate.formats.storable import storable_fields
from headgate.reasons import Reason
from headgate.schema.field_facts import with_facts


class _Form(Enum):
    """What the values of a part of a column are, and how they are kept until all are known."""

    TRUTH = pa.bool_()
    WHOLE = pa.int64()
    NUMBER = "as written"
    TEXT = pa.string()
    ANY = "texts, and the JSON of all else"


_Part = tuple[_Form, pa.Array]


class JsonColumns:
    """The columns of objects that come in portions."""

    def __init__(self) -> None:
        self._sizes: list[int] = []
        self._columns: dict[str, dict[int, _Part]] = {}

    def add(self, objects: Sequence[dict[str, Any]]) -> None:
        portion = len(self._sizes)
        self._sizes.append(len(objects))
        for name, values in values_by_name(objects).items():
            part = _part(values)
            if part is not None:
                self._columns.setdefault(name, {})[portion] = part
        columns = len(self._columns)
        if columns > MOST_FIELDS or columns * sum(self._sizes) > MOST_CELLS:
            raise UnreadableFile("its rows have too many columns")

    def batch(self) -> pa.RecordBatch:
        """All objects; a column that is null in each of them has no type, and is left out."""
        if not self._columns:
            return only_length(sum(self._sizes))
        arrays = [self._array(parts) for parts in self._columns.values()]
        fields = [
            with_facts(pa.field(name, array.type))
            for name, array in zip(self._columns, arrays, strict=True)
        ]
        schema = pa.schema(storable_fields(fields, LOG_COLUMN_NAMES))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _array(self, parts: dict[int, _Part]) -> pa.Array:
        forms = {form for form, _ in parts.values()}
        alike = len(forms) == 1 and forms <= {_Form.TRUTH, _Form.WHOLE, _Form.TEXT}
        kind = next(iter(forms)).value if alike else pa.string()
        arrays = [
            parts[portion][1].cast(kind) if portion in parts else pa.nulls(size, kind)
            for portion, size in enumerate(self._sizes)
        ]
        whole = pa.concat_arrays(arrays)
        return whole if alike or not forms <= {_Form.WHOLE, _Form.NUMBER} else _numbers(whole)


def values_by_name(objects: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """What the objects have under each of their names, null where one does not have it."""
    try:
        if len(set(map(len, objects))) == 1:
            return {name: list(map(itemgetter(name), objects)) for name in objects[0]}
    except KeyError:
        pass
    names = dict.fromkeys(chain.from_iterable(objects))
    return {name: [one.get(name) for one in objects] for name in names}


def _part(values: list[Any]) -> _Part | None:
    kinds = set(map(type, values)) - {NoneType}
    if not kinds:
        return None
    if kinds == {str}:
        return _Form.TEXT, pa.array(values, pa.string())
    if kinds == {bool}:
        return _Form.TRUTH, pa.array(values, pa.bool_())
    if kinds == {int}:
        try:
            return _Form.WHOLE, pa.array(values, pa.int64())
        except (OverflowError, pa.ArrowInvalid):
            pass
    form = _Form.NUMBER if kinds <= {int, Written} else _Form.ANY
    return form, pa.array([_text(one) for one in values], pa.string())


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json_text(value)


def _numbers(written: pa.StringArray) -> pa.Array:
    """As numbers, if that takes no digit of any one of them."""
    texts: list[str | None] = written.to_pylist()
    try:
        if not any("." in one or "e" in one.lower() for one in texts if one):
            decimals = [None if one is None else Decimal(one) for one in texts]
            return pa.array(decimals, pa.decimal128(WIDEST_DECIMAL, 0))
        return pa.array([None if one is None else _exact(one) for one in texts], pa.float64())
    except (ArithmeticError, ValueError):
        return written


def _exact(text: str) -> float:
    number = float(text)
    if repr(number) != text and Decimal(repr(number)) != Decimal(text):
        raise InvalidOperation
    return number


_PARTS = {("source_metadata",), ("payload",)}
_ALIKE = {str: pa.string(), bool: pa.bool_(), int: pa.int64()}


def told_by(records: Sequence[JsonRecord]) -> pa.RecordBatch:
    """The metadata of records that have a source table each."""
    values = [one.value or {} for one in records]
    sources = [one["source_metadata"] for one in values]
    told: dict[Place, pa.Array] = {}
    more: More = {}
    for above, holders in (((), values), (("source_metadata",), sources)):
        for name, found in values_by_name(holders).items():
            kinds = set(map(type, found)) - {NoneType}
            place = (*above, name)
            if not kinds or place in _PARTS:
                continue
            if place not in COLUMNS:
                _note(more, place, found)
            elif pa.types.is_list(METADATA.field(COLUMNS[place]).type):
                told[place] = _lists(found, kinds, place, more)
            else:
                told[place] = _scalars(found, kinds, place, more)

    def value_at(place: Place, row: int) -> Any:
        return (values if len(place) == 1 else sources)[row][place[-1]]

    return metadata_columns(
        len(records), told, more, value_at, lambda rows: [records[row].content for row in rows]
    )


def _scalars(found: list[Any], kinds: set[type], place: Place, more: More) -> pa.Array:
    """As they are if they are of one kind, else as text: every column can be read from that."""
    if len(kinds) == 1:
        try:
            return pa.array(found, _ALIKE[next(iter(kinds))])
        except (KeyError, OverflowError, pa.ArrowInvalid):
            pass
    for row, one in enumerate(found):
        if isinstance(one, list | dict):
            add_more(more, row, place, one)
    return pa.array([_scalar_text(one) for one in found], pa.string())


def _lists(found: list[Any], kinds: set[type], place: Place, more: More) -> pa.Array:
    for row, one in enumerate(found if kinds != {list} else ()):
        if one is not None and not isinstance(one, list):
            add_more(more, row, place, one)
            found[row] = None
    sizes = [0 if one is None else len(one) for one in found]
    items = list(chain.from_iterable(filter(None, found)))
    if set(map(type, items)) != {str}:
        items = [item if type(item) is str else _metadata_text(item) for item in items]
    ends = np.cumsum([0, *sizes], dtype=np.int32)
    mask = pa.array([one is None for one in found])
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(items, pa.string()), mask=mask)


def _scalar_text(value: Any) -> str | None:
    return None if isinstance(value, list | dict) else _metadata_text(value)


def _metadata_text(value: Any) -> str | None:
    if type(value) is int:
        return str(value)
    return value if value is None or isinstance(value, str) else json_text(value)


def _note(more: More, place: Place, found: list[Any]) -> None:
    for row, value in enumerate(found):
        if value is not None:
            add_more(more, row, place, value)


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
