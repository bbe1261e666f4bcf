"""Changes from a JSON file, with columns whose types are inferred from their values."""

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

from headgate.envelopes.datastream.changes import (
    MAX_CELLS,
    MAX_REJECTED,
    MAX_TABLES,
    METADATA,
    RESERVED_COLUMN_NAMES,
    Changes,
    OpenedFile,
    RejectedChanges,
    SourceTable,
    UnreadableFile,
    no_changes,
    require_few_records,
)
from headgate.envelopes.datastream.json_records import (
    JsonRecord,
    NumberText,
    json_records,
    json_text,
)
from headgate.envelopes.datastream.metadata import (
    COLUMNS,
    Extras,
    FieldPath,
    add_extra,
    metadata_columns,
)
from headgate.envelopes.opened import pause_collection
from headgate.formats.avro.columns import MAX_DECIMAL_PRECISION, MAX_FIELDS
from headgate.formats.decoder import only_length
from headgate.formats.storable import storable_fields
from headgate.reasons import Reason
from headgate.schema.field_metadata import with_field_metadata

_CHUNK_RECORDS = 1_024
_CHUNK_SIZE = 8 << 20
"""Python values take many times the memory of Arrow's: convert each chunk before the next."""


def open_json(content: bytes) -> OpenedFile:
    """Return the changes of a file; raise UnreadableFile or UnfinishedFile."""
    file = _JsonFile()
    with pause_collection():
        for position, record in enumerate(json_records(content)):
            require_few_records(position)
            file.add(position, record)
        return file.opened()


def extract_json_records(content: bytes, positions: Collection[int]) -> Iterator[tuple[int, bytes]]:
    """Yield the records at some positions, each as a file with only that record."""
    wanted, last = set(positions), max(positions, default=-1)
    for position, record in enumerate(islice(json_records(content), last + 1)):
        if position in wanted:
            yield position, record.file


@dataclass
class _TableChanges:
    """The changes of one source table."""

    columns: JsonColumns = field(default_factory=lambda: JsonColumns())
    metadata: list[pa.RecordBatch] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    pending: list[JsonRecord] = field(default_factory=list)

    def flush(self) -> None:
        """Convert the pending records to columns."""
        if self.pending:
            self.metadata.append(json_metadata(self.pending))
            self.columns.add([record.value["payload"] for record in self.pending if record.value])
            self.pending = []


_SourceNames = tuple[str | None, str | None, str]
"""The names of a database, a schema and a table: cheaper to hash than a SourceTable."""


class _JsonFile:
    """The changes and rejected records of a file that is read record by record."""

    def __init__(self) -> None:
        self._tables: dict[_SourceNames, _TableChanges] = {}
        self._rejected = RejectedChanges()
        self._pending_records = self._pending_size = 0
        self._first_error = ""
        self._has_json = False

    def add(self, position: int, record: JsonRecord) -> None:
        value = record.value
        if value is None:
            self._first_error = self._first_error or record.error
            self._has_json = self._has_json or record.is_json
            self._reject(position, record, record.error)
            return
        self._has_json = True
        source = value.get("source_metadata")
        names = _source_names(source) if isinstance(source, dict) else None
        if names is None:
            self._reject(position, record, "the record names no table")
        elif not isinstance(value.get("payload"), dict):
            self._reject(position, record, "the record has no payload", SourceTable(*names))
        else:
            table = self._tables.get(names) or self._new_table(names)
            table.pending.append(record)
            table.positions.append(position)
            self._pending_records += 1
            self._pending_size += len(record.content)
            if self._pending_records >= _CHUNK_RECORDS or self._pending_size >= _CHUNK_SIZE:
                self._flush()

    def opened(self) -> OpenedFile:
        self._require_json()
        self._flush()
        changes = [
            Changes(
                SourceTable(*names),
                pa.concat_batches(table.metadata),
                table.columns.batch(),
                np.array(table.positions, np.int64),
            )
            for names, table in self._tables.items()
        ]
        return OpenedFile(changes, self._rejected.kept, self._rejected.more)

    def _require_json(self) -> None:
        if self._first_error and not self._has_json:
            raise UnreadableFile(f"not Avro and {self._first_error}")

    def _flush(self) -> None:
        for table in self._tables.values():
            table.flush()
        self._pending_records = self._pending_size = 0

    def _new_table(self, names: _SourceNames) -> _TableChanges:
        if len(self._tables) == MAX_TABLES:
            raise UnreadableFile(f"changes of more than {MAX_TABLES} tables")
        self._tables[names] = _TableChanges()
        return self._tables[names]

    def _reject(
        self, position: int, record: JsonRecord, detail: str, source: SourceTable | None = None
    ) -> None:
        reason = Reason.CHANGE_UNREADABLE
        self._rejected.add(position, reason, detail, lambda: record.file, source)
        if not self._tables and self._rejected.total > MAX_REJECTED:
            self._require_json()
            raise no_changes()


def _source_names(source: dict[str, Any]) -> _SourceNames | None:
    table = _name(source.get("table"))
    return (_name(source.get("database")), _name(source.get("schema")), table) if table else None


def _name(value: Any) -> str | None:
    if value is None or type(value) is str:
        return value
    return json_text(value) if isinstance(value, bool | int | str) else None


class _ValueType(Enum):
    """The common type of the values in a part of a column, and how the part is kept."""

    BOOLEAN = pa.bool_()
    LONG = pa.int64()
    NUMBER = "numbers as text"
    STRING = pa.string()
    MIXED = "strings, and JSON text for all other values"


_Part = tuple[_ValueType, pa.Array]


class JsonColumns:
    """The columns of JSON objects that are added in portions."""

    def __init__(self) -> None:
        self._sizes: list[int] = []
        self._columns: dict[str, dict[int, _Part]] = {}
        """Parts by column and portion."""

    def add(self, objects: Sequence[dict[str, Any]]) -> None:
        portion = len(self._sizes)
        self._sizes.append(len(objects))
        for name, values in _values_by_name(objects).items():
            part = _part(values)
            if part is not None:
                self._columns.setdefault(name, {})[portion] = part
        columns = len(self._columns)
        if columns > MAX_FIELDS or columns * sum(self._sizes) > MAX_CELLS:
            raise UnreadableFile("the rows have too many columns")

    def batch(self) -> pa.RecordBatch:
        """Return all objects; columns that are always null have no type and are left out."""
        if not self._columns:
            return only_length(sum(self._sizes))
        arrays = [self._array(parts) for parts in self._columns.values()]
        fields = [
            with_field_metadata(pa.field(name, array.type))
            for name, array in zip(self._columns, arrays, strict=True)
        ]
        schema = pa.schema(storable_fields(fields, RESERVED_COLUMN_NAMES))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _array(self, parts: dict[int, _Part]) -> pa.Array:
        types = {value_type for value_type, _ in parts.values()}
        has_one_type = len(types) == 1 and types <= {
            _ValueType.BOOLEAN,
            _ValueType.LONG,
            _ValueType.STRING,
        }
        target = next(iter(types)).value if has_one_type else pa.string()
        arrays = [
            parts[portion][1].cast(target) if portion in parts else pa.nulls(size, target)
            for portion, size in enumerate(self._sizes)
        ]
        array = pa.concat_arrays(arrays)
        if has_one_type or not types <= {_ValueType.LONG, _ValueType.NUMBER}:
            return array
        return _to_numbers(array)


def _values_by_name(objects: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """Return the values of each key, with None for objects that lack it."""
    try:
        if len(set(map(len, objects))) == 1:
            return {name: list(map(itemgetter(name), objects)) for name in objects[0]}
    except KeyError:
        pass
    names = dict.fromkeys(chain.from_iterable(objects))
    return {name: [item.get(name) for item in objects] for name in names}


def _part(values: list[Any]) -> _Part | None:
    types = set(map(type, values)) - {NoneType}
    if not types:
        return None
    if types == {str}:
        return _ValueType.STRING, pa.array(values, pa.string())
    if types == {bool}:
        return _ValueType.BOOLEAN, pa.array(values, pa.bool_())
    if types == {int}:
        try:
            return _ValueType.LONG, pa.array(values, pa.int64())
        except (OverflowError, pa.ArrowInvalid):
            pass
    value_type = _ValueType.NUMBER if types <= {int, NumberText} else _ValueType.MIXED
    return value_type, pa.array([_text(value) for value in values], pa.string())


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json_text(value)


def _to_numbers(array: pa.StringArray) -> pa.Array:
    """Convert text to numbers, unless a digit of any of them would be lost."""
    texts: list[str | None] = array.to_pylist()
    try:
        if not any("." in text or "e" in text.lower() for text in texts if text):
            decimals = [None if text is None else Decimal(text) for text in texts]
            return pa.array(decimals, pa.decimal128(MAX_DECIMAL_PRECISION, 0))
        doubles = [None if text is None else _exact_double(text) for text in texts]
        return pa.array(doubles, pa.float64())
    except (ArithmeticError, ValueError):
        return array


def _exact_double(text: str) -> float:
    number = float(text)
    if repr(number) != text and Decimal(repr(number)) != Decimal(text):
        raise InvalidOperation
    return number


_NOT_METADATA = {("source_metadata",), ("payload",)}
_SCALAR_TYPES = {str: pa.string(), bool: pa.bool_(), int: pa.int64()}


def json_metadata(records: Sequence[JsonRecord]) -> pa.RecordBatch:
    """Return the metadata of records, all of which have `source_metadata`."""
    objects = [record.value or {} for record in records]
    sources = [item["source_metadata"] for item in objects]
    columns: dict[FieldPath, pa.Array] = {}
    extras: Extras = {}
    for parent, holders in (((), objects), (("source_metadata",), sources)):
        for name, values in _values_by_name(holders).items():
            types = set(map(type, values)) - {NoneType}
            path = (*parent, name)
            if not types or path in _NOT_METADATA:
                continue
            if path not in COLUMNS:
                _add_extras(extras, path, values)
            elif pa.types.is_list(METADATA.field(COLUMNS[path]).type):
                columns[path] = _lists(values, types, path, extras)
            else:
                columns[path] = _scalars(values, types, path, extras)

    def value_at(path: FieldPath, row: int) -> Any:
        return (objects if len(path) == 1 else sources)[row][path[-1]]

    return metadata_columns(
        len(records), columns, extras, value_at, lambda rows: [records[row].content for row in rows]
    )


def _scalars(values: list[Any], types: set[type], path: FieldPath, extras: Extras) -> pa.Array:
    """Return values of one type as they are and others as text, which every column can parse."""
    if len(types) == 1:
        try:
            return pa.array(values, _SCALAR_TYPES[next(iter(types))])
        except (KeyError, OverflowError, pa.ArrowInvalid):
            pass
    for row, value in enumerate(values):
        if isinstance(value, list | dict):
            add_extra(extras, row, path, value)
    return pa.array(
        [None if isinstance(value, list | dict) else _text(value) for value in values], pa.string()
    )


def _lists(values: list[Any], types: set[type], path: FieldPath, extras: Extras) -> pa.Array:
    for row, value in enumerate(values if types != {list} else ()):
        if value is not None and not isinstance(value, list):
            add_extra(extras, row, path, value)
            values[row] = None
    sizes = [0 if value is None else len(value) for value in values]
    items = list(chain.from_iterable(filter(None, values)))
    if set(map(type, items)) != {str}:
        items = [item if type(item) is str else _text(item) for item in items]
    offsets = np.cumsum([0, *sizes], dtype=np.int32)
    mask = pa.array([value is None for value in values])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(items, pa.string()), mask=mask)


def _add_extras(extras: Extras, path: FieldPath, values: list[Any]) -> None:
    for row, value in enumerate(values):
        if value is not None:
            add_extra(extras, row, path, value)
