"""The strict decoder that reads one Avro record at a time and defines what each record means.

The batch reader only has to agree with it. fastavro is too lenient for this role: it reads
branch -1 as the last one, and follows recursive records until the process dies.
"""

from __future__ import annotations

import json
import math
import struct
from base64 import b64encode
from collections.abc import Mapping
from decimal import Context, Decimal
from typing import Any
from uuid import UUID

from headgate.formats.avro.columns import (
    DURATION,
    MAX_DECIMAL_PRECISION,
    branch_names,
    cell_count,
)
from headgate.formats.avro.encoding import (
    MAX_VALUE_DEPTH,
    PRIMITIVE_READERS,
    Cursor,
    MalformedAvro,
    Read,
    fixed_reader,
    read_int,
    read_items,
    read_long,
    read_string,
)
from headgate.formats.avro.types import (
    Array,
    Enum,
    Fixed,
    JsonTextType,
    LogicalType,
    Map,
    Named,
    Primitive,
    Record,
    Reference,
    Type,
    Union,
)

_DECIMAL_CONTEXT = Context(prec=MAX_DECIMAL_PRECISION)


class AvroReferenceDecoder:
    """Decodes records of one type into values that pyarrow accepts for its columns."""

    def __init__(self, record: Record, named: Mapping[str, Named]) -> None:
        self._read = _ColumnReaders(named).reader(record)

    def decode(self, cursor: Cursor) -> Any:
        """Decode a whole payload; raise MalformedAvro if it is not exactly one record."""
        value = self.decode_next(cursor)
        if left := len(cursor.data) - cursor.position:
            raise MalformedAvro(f"{left} bytes after the record")
        return value

    def decode_next(self, cursor: Cursor) -> Any:
        """Decode the record at the cursor and move the cursor to its end."""
        try:
            return self._read(cursor)
        except IndexError:
            raise MalformedAvro("ends too early") from None
        except UnicodeDecodeError as error:
            raise MalformedAvro(f"a string is not UTF-8: {error.reason}") from None
        except RecursionError:
            raise MalformedAvro(f"nests deeper than {MAX_VALUE_DEPTH}") from None


class _ColumnReaders:
    """Builds readers of values in the form that pyarrow accepts for a column."""

    def __init__(self, named: Mapping[str, Named]) -> None:
        self.named = named

    def reader(self, avro_type: Type) -> Read:
        match avro_type:
            case Primitive() | Fixed():
                return self.primitive(avro_type)
            case Enum(symbols=symbols):
                return _symbol_reader(symbols)
            case Array(items):
                return self.array(self.reader(items), cell_count(items))
            case Map(values):
                return self.map(self.reader(values), 1 + cell_count(values))
            case Record(fields=fields):
                return self.record(tuple((field.name, self.reader(field.type)) for field in fields))
            case Union():
                return self._union(avro_type)
            case JsonTextType(inside):
                return _json_text_reader(_JsonReaders(self.named).reader(inside))
            case _:
                raise AssertionError(f"{avro_type} is not expanded")

    def primitive(self, avro_type: Primitive | Fixed) -> Read:
        read = _physical_reader(avro_type)
        return read if avro_type.logical is None else _logical_reader(avro_type.logical, read)

    def array(self, item: Read, item_cells: int) -> Read:
        return lambda cursor: [item(cursor) for _ in read_items(cursor, item_cells)]

    def map(self, value: Read, entry_cells: int) -> Read:
        return lambda cursor: list(_entries(cursor, value, entry_cells).items())

    def record(self, fields: tuple[tuple[str, Read], ...]) -> Read:
        return lambda cursor: {name: read(cursor) for name, read in fields}

    def _union(self, union: Union) -> Read:
        names = branch_names(union)
        readers = [self.reader(branch) for branch in union.branches]
        if len(names) > 1:
            for index, name in names.items():
                readers[index] = _struct_reader(name, readers[index])

        def branch(cursor: Cursor) -> Any:
            index = read_long(cursor)
            if not 0 <= index < len(readers):
                raise MalformedAvro(f"branch {index} of a union with {len(readers)} branches")
            return readers[index](cursor)

        return branch


class _JsonReaders(_ColumnReaders):
    """Builds readers of JSON values, for recursive types.

    Uses loops instead of comprehensions to keep the number of Python frames per level small.
    """

    def __init__(self, named: Mapping[str, Named]) -> None:
        super().__init__(named)
        self._readers: dict[str, Read] = {}

    def reader(self, avro_type: Type) -> Read:
        if isinstance(avro_type, Reference):
            return lambda cursor: self._named_reader(avro_type.name)(cursor)
        return super().reader(avro_type)

    def primitive(self, avro_type: Primitive | Fixed) -> Read:
        read, logical = _physical_reader(avro_type), avro_type.logical
        if logical is not None and logical.name == "decimal":
            return lambda cursor: decimal_text(read(cursor), logical)
        if logical is not None:
            return _logical_reader(logical, read)
        if isinstance(avro_type, Fixed) or avro_type.name == "bytes":
            return lambda cursor: b64encode(read(cursor)).decode()
        if avro_type.name in ("float", "double"):
            return lambda cursor: _json_number(read(cursor))
        return read

    def array(self, item: Read, item_cells: int) -> Read:
        def array(cursor: Cursor) -> list[Any]:
            cursor.descend()
            items = []
            for _ in read_items(cursor, item_cells):
                items.append(item(cursor))
            cursor.depth -= 1
            return items

        return array

    def map(self, value: Read, entry_cells: int) -> Read:
        def entries(cursor: Cursor) -> dict[str, Any]:
            cursor.descend()
            result = _entries(cursor, value, entry_cells)
            cursor.depth -= 1
            return result

        return entries

    def record(self, fields: tuple[tuple[str, Read], ...]) -> Read:
        def record(cursor: Cursor) -> dict[str, Any]:
            cursor.descend()
            cursor.count(len(fields))
            values = {}
            for name, read in fields:
                values[name] = read(cursor)
            cursor.depth -= 1
            return values

        return record

    def _named_reader(self, name: str) -> Read:
        if name not in self._readers:
            self._readers[name] = self.reader(self.named[name])
        return self._readers[name]


def _physical_reader(avro_type: Primitive | Fixed) -> Read:
    if isinstance(avro_type, Fixed):
        return fixed_reader(avro_type.size)
    return PRIMITIVE_READERS[avro_type.name]


def _symbol_reader(symbols: tuple[str, ...]) -> Read:
    def symbol(cursor: Cursor) -> str:
        index = read_int(cursor)
        if not 0 <= index < len(symbols):
            raise MalformedAvro(f"symbol {index} of an enum with {len(symbols)} symbols")
        return symbols[index]

    return symbol


def _entries(cursor: Cursor, value: Read, entry_cells: int) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    for _ in read_items(cursor, entry_cells):
        key = read_string(cursor)
        if key in entries:
            raise MalformedAvro("a map has a key twice")
        entries[key] = value(cursor)
    return entries


def _struct_reader(field: str, read: Read) -> Read:
    return lambda cursor: {field: read(cursor)}


def _json_text_reader(read: Read) -> Read:
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


def _logical_reader(logical: LogicalType, read: Read) -> Read:
    """Return a reader of logical values, given the reader of the physical ones."""
    match logical.name:
        case "decimal":
            return _decimal_reader(logical, read)
        case "time-millis":
            return lambda cursor: read(cursor) * 1_000
        case "timestamp-millis" | "local-timestamp-millis":
            return lambda cursor: _micros(read(cursor))
        case "duration":
            return lambda cursor: _duration(read(cursor))
        case "uuid":
            return lambda cursor: _uuid(read(cursor))
        case _:
            return read


def _decimal_reader(logical: LogicalType, read: Read) -> Read:
    if logical.precision > MAX_DECIMAL_PRECISION:
        return lambda cursor: decimal_text(read(cursor), logical)
    exponent = -logical.scale
    return lambda cursor: Decimal(_unscaled(read(cursor), logical)).scaleb(
        exponent, _DECIMAL_CONTEXT
    )


def decimal_text(encoded: bytes, logical: LogicalType) -> str:
    """Return a decimal with all of its digits and no exponent."""
    unscaled, scale = _unscaled(encoded, logical), logical.scale
    digits = f"{abs(unscaled):0{scale + 1}d}"
    whole, fraction = digits[: len(digits) - scale], digits[len(digits) - scale :]
    return f"{'-' if unscaled < 0 else ''}{whole}{'.' if scale else ''}{fraction}"


def _unscaled(encoded: bytes, logical: LogicalType) -> int:
    if not encoded:
        raise MalformedAvro("a decimal has no bytes")
    unscaled = int.from_bytes(encoded, "big", signed=True)
    if abs(unscaled) >= 10**logical.precision:
        raise MalformedAvro(f"a decimal has more than {logical.precision} digits")
    return unscaled


def _micros(millis: int) -> int:
    if not -(1 << 63) <= millis * 1_000 < 1 << 63:
        raise MalformedAvro("a timestamp overflows 64 bits of microseconds")
    return millis * 1_000


def _duration(encoded: bytes) -> dict[str, int]:
    return dict(zip(DURATION.names, struct.unpack("<III", encoded), strict=True))


def _uuid(value: str | bytes) -> str:
    return value if isinstance(value, str) else str(UUID(bytes=value))
