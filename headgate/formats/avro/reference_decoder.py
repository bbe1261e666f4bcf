"""Avro a record at a time, by the letter: what this reads is what a record says.

The reader of whole batches only has to agree with it. fastavro would be too kind for that: it
takes branch -1 for the last one, and a record in a record in a record until the process ends.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from headgate.formats.avro.columns import branch_names
from headgate.formats.avro.primitive_columns import decimal_text, meaning_reader, symbol_reader
from headgate.formats.avro.read_bytes import (
    DEEPEST_VALUE,
    PLAIN_READERS,
    Cursor,
    Read,
    WrongBytes,
    fixed_reader,
    places,
    read_blocks,
    read_long,
    read_string,
)
from headgate.formats.avro.types import (
    Array,
    Enum,
    Fixed,
    JsonText,
    Map,
    Named,
    Primitive,
    Record,
    Reference,
    Type,
    Union,
)


class ExactReader:
    """Reads records of one type into the values that its columns take."""

    def __init__(self, record: Record, named: Mapping[str, Named]) -> None:
        self._read = _ColumnReaders(named).reader(record)

    def read(self, payload: bytes) -> Any:
        """The record; WrongBytes says what is wrong with it."""
        cursor = Cursor(payload)
        value = self.read_next(cursor)
        if cursor.at != len(payload):
            raise WrongBytes(f"{len(payload) - cursor.at} bytes after the record")
        return value

    def read_next(self, cursor: Cursor) -> Any:
        """The record that begins at the cursor, which goes to its end."""
        try:
            return self._read(cursor)
        except IndexError:
            raise WrongBytes("ends too early") from None
        except UnicodeDecodeError as error:
            raise WrongBytes(f"a string is not UTF-8: {error.reason}") from None
        except RecursionError:
            raise WrongBytes(f"nests deeper than {DEEPEST_VALUE}") from None


class _ColumnReaders:
    """Makes readers of values as pyarrow takes them for a column."""

    def __init__(self, named: Mapping[str, Named]) -> None:
        self.named = named

    def reader(self, kind: Type) -> Read:
        match kind:
            case Primitive() | Fixed():
                return self.leaf(kind)
            case Enum(symbols=symbols):
                return symbol_reader(symbols)
            case Array(items):
                return self.array(self.reader(items), places(items))
            case Map(values):
                return self.map(self.reader(values), 1 + places(values))
            case Record(fields=fields):
                return self.record(tuple((one.name, self.reader(one.type)) for one in fields))
            case Union():
                return self._union(kind)
            case JsonText(inside):
                return _text_reader(_JsonReaders(self.named).reader(inside))
            case _:
                raise AssertionError(f"{kind} is not expanded")

    def leaf(self, kind: Primitive | Fixed) -> Read:
        plain = _plain_reader(kind)
        return plain if kind.logical is None else meaning_reader(kind.logical, plain)

    def array(self, item: Read, weight: int) -> Read:
        return lambda cursor: [item(cursor) for _ in read_blocks(cursor, weight)]

    def map(self, value: Read, weight: int) -> Read:
        return lambda cursor: list(_entries(cursor, value, weight).items())

    def record(self, fields: tuple[tuple[str, Read], ...]) -> Read:
        return lambda cursor: {name: read(cursor) for name, read in fields}

    def _union(self, union: Union) -> Read:
        names = branch_names(union)
        readers = [self.reader(branch) for branch in union.branches]
        if len(names) > 1:
            for at, name in names.items():
                readers[at] = _labelled(name, readers[at])

        def branch(cursor: Cursor) -> Any:
            index = read_long(cursor)
            if not 0 <= index < len(readers):
                raise WrongBytes(f"branch {index} of a union that has {len(readers)}")
            return readers[index](cursor)

        return branch


class _JsonReaders(_ColumnReaders):
    """Makes readers of values as JSON has them, for types without an end.

    Loops instead of comprehensions: each nesting may take only a few of Python's frames.
    """

    def __init__(self, named: Mapping[str, Named]) -> None:
        super().__init__(named)
        self._made: dict[str, Read] = {}

    def reader(self, kind: Type) -> Read:
        if isinstance(kind, Reference):
            return lambda cursor: self._named_reader(kind.name)(cursor)
        return super().reader(kind)

    def leaf(self, kind: Primitive | Fixed) -> Read:
        plain, logical = _plain_reader(kind), kind.logical
        if logical is not None and logical.name == "decimal":
            return lambda cursor: decimal_text(plain(cursor), logical)
        if logical is not None:
            return meaning_reader(logical, plain)
        if isinstance(kind, Fixed) or kind.kind == "bytes":
            return lambda cursor: b64encode(plain(cursor)).decode()
        if kind.kind in ("float", "double"):
            return lambda cursor: _json_number(plain(cursor))
        return plain

    def array(self, item: Read, weight: int) -> Read:
        def array(cursor: Cursor) -> list[Any]:
            cursor.go_deeper()
            items = []
            for _ in read_blocks(cursor, weight):
                items.append(item(cursor))
            cursor.depth -= 1
            return items

        return array

    def map(self, value: Read, weight: int) -> Read:
        def entries(cursor: Cursor) -> dict[str, Any]:
            cursor.go_deeper()
            found = _entries(cursor, value, weight)
            cursor.depth -= 1
            return found

        return entries

    def record(self, fields: tuple[tuple[str, Read], ...]) -> Read:
        def record(cursor: Cursor) -> dict[str, Any]:
            cursor.go_deeper()
            cursor.count(len(fields))
            found = {}
            for name, read in fields:
                found[name] = read(cursor)
            cursor.depth -= 1
            return found

        return record

    def _named_reader(self, name: str) -> Read:
        if name not in self._made:
            self._made[name] = self.reader(self.named[name])
        return self._made[name]


def _plain_reader(kind: Primitive | Fixed) -> Read:
    return fixed_reader(kind.size) if isinstance(kind, Fixed) else PLAIN_READERS[kind.kind]


def _entries(cursor: Cursor, value: Read, weight: int) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    for _ in read_blocks(cursor, weight):
        key = read_string(cursor)
        if key in entries:
            raise WrongBytes("a map has a duplicate key")
        entries[key] = value(cursor)
    return entries


def _labelled(name: str, read: Read) -> Read:
    return lambda cursor: {name: read(cursor)}


def _text_reader(read: Read) -> Read:
    def text(cursor: Cursor) -> str | None:
        value = read(cursor)
        if value is None:
            return None
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))

    return text


def _json_number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
