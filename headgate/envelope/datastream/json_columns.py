"""Columns from JSON values: each has the type that fits every value of it, to the last digit."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from enum import Enum
from itertools import chain
from operator import itemgetter
from types import NoneType
from typing import Any

import pyarrow as pa

from headgate.envelope.datastream.columns import LOG_COLUMN_NAMES
from headgate.envelope.datastream.json_text import Written, json_text
from headgate.envelope.datastream.opened_file import MOST_CELLS, UnreadableFile
from headgate.schema.avro.columns import MOST_FIELDS, WIDEST_DECIMAL
from headgate.schema.decoder import only_length
from headgate.schema.field_facts import with_facts
from headgate.schema.storable import storable_fields


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
