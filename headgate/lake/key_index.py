"""Finds the rows of a file, or the files of a table, that have one of some keys."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal, localcontext
from functools import cached_property
from math import isnan
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_MANY = 4_096
"""Values that do not fit into the nearest cache any more."""
_TRUNCATED = 1_000
"""Microseconds that statistics of timestamps may lack: Spark writes them in milliseconds."""
_ROUNDED = Decimal("1e-14")
"""Share of a decimal that its statistics may be off: delta-rs writes them as doubles, or clamps
them to 64 bits."""
_LEAST_LONG, _GREATEST_LONG = Decimal(-(2**63)), Decimal(2**63 - 1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class KeyIndex:
    """Finds the keys of a table, in which each is unique.

    Null is equal to null, NaN is equal to NaN, and 0.0 to -0.0, as in Spark.
    """

    def __init__(self, rows: pa.Table, key: Sequence[str]) -> None:
        self.key = tuple(key)
        self._columns: list[tuple[pa.Array, np.ndarray]] = []
        """Distinct values of each column, and the codes of all keys up to it."""
        codes = np.zeros(len(rows), np.int64)
        for name in key:
            column = comparable_key(rows[name].combine_chunks())
            values = column.unique()
            codes = codes * len(values) + _places(column, values)
            known, codes = np.unique(codes, return_inverse=True)
            self._columns.append((values, known))
        self._places = np.empty(len(rows), np.int64)
        self._places[codes] = np.arange(len(rows))

    def __len__(self) -> int:
        return len(self._places)

    def find(self, rows: pa.Table) -> np.ndarray:
        """Return the place of each row's key among the keys; -1 if it is not there."""
        if not len(self._places):
            return np.full(len(rows), -1)
        # Only rows that have one of the keys in the columns so far are looked at any further.
        left, codes = np.arange(len(rows)), np.zeros(len(rows), np.int64)
        for name, (values, known) in zip(self.key, self._columns, strict=True):
            column = rows[name].combine_chunks()
            if len(left) < len(rows):
                column = column.take(pa.array(left))
            place = _places(comparable_key(column), values)
            has = np.flatnonzero(place >= 0)
            codes = codes[has] * len(values) + place[has]
            at = np.searchsorted(known, codes)
            at[at == len(known)] = 0
            same = known[at] == codes
            left, codes = left[has][same], at[same]
        found = np.full(len(rows), -1)
        found[left] = self._places[codes]
        return found

    @cached_property
    def _in_order(self) -> list[Any]:
        """Values of the first column, without null and NaN."""
        values = self._columns[0][0].drop_null()
        if pa.types.is_floating(values.type):
            values = values.filter(pc.invert(pc.is_nan(values)))
        return sorted(bounds_of(values))

    @cached_property
    def _may_be_anywhere(self) -> bool:
        """Whether statistics do not tell where a key is: they may ignore NaN, or lack binary."""
        values = self._columns[0][0]
        if pa.types.is_floating(values.type):
            return bool(pc.any(pc.is_nan(values)).as_py())
        return bool(pa.types.is_binary(values.type) or pa.types.is_nested(values.type))

    def may_be_in(self, least: Any, greatest: Any, nulls: int | None) -> bool:
        """Whether rows may have any of the keys, given statistics of the first key column.

        Files are written by others too, who round and truncate the least and the greatest value.
        """
        if self._may_be_anywhere or (self._columns[0][0].null_count and nulls != 0):
            return True
        if least is None or greatest is None:
            return nulls is None or bool(self._in_order)
        least, greatest = _widened(least, greatest)
        if isinstance(least, float) and isnan(least):
            return True
        at = bisect_left(self._in_order, least)
        return at < len(self._in_order) and not self._in_order[at] > greatest


def comparable_key(column: pa.Array) -> pa.Array:
    """Return the values of a key with one NaN, and without -0.0."""
    if not pa.types.is_floating(column.type):
        return column
    nan = pa.scalar(float("nan"), column.type)
    return pc.if_else(pc.is_nan(column), nan, pc.add(column, pa.scalar(0.0, column.type)))


def bounds_of(values: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return values as Python can compare them: timestamps, of any year, as microseconds."""
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())
        return [None if value is None else _Micros(value) for value in values.to_pylist()]
    return list(values.to_pylist())


class _Micros(int):
    """Microseconds since the epoch."""


def _widened(least: Any, greatest: Any) -> tuple[Any, Any]:
    """Return bounds that include all values, also if they were rounded or truncated."""
    if isinstance(greatest, datetime):
        least, greatest = _micros(least), _micros(greatest)
    if isinstance(greatest, _Micros):
        return least, greatest + _TRUNCATED
    if isinstance(greatest, Decimal):
        with localcontext() as context:
            context.prec = 80
            least -= abs(least) * _ROUNDED
            greatest += abs(greatest) * _ROUNDED
        if least <= _LEAST_LONG:
            least = Decimal("-Infinity")
        if greatest >= _GREATEST_LONG:
            greatest = Decimal("Infinity")
    return least, greatest


def _micros(time: datetime) -> _Micros:
    return _Micros((time.replace(tzinfo=time.tzinfo or UTC) - _EPOCH) // timedelta(microseconds=1))


def _places(column: pa.Array, values: pa.Array) -> np.ndarray:
    """Return the place of each value of a column among distinct values; -1 if it is not there."""
    near = None
    if len(values) > _MANY and pa.types.is_integer(column.type) and column.null_count == 0:
        # A file has a range of keys. Among fewer values, each is found sooner.
        bounds = pc.min_max(column)
        inside = pc.and_(pc.less_equal(bounds["min"], values), pc.less_equal(values, bounds["max"]))
        near = np.flatnonzero(np.asarray(pc.fill_null(inside, False), bool))
        values = values.take(pa.array(near))
    places: np.ndarray = pc.fill_null(pc.index_in(column, value_set=values), -1).to_numpy()
    places = places if near is None else np.append(near, -1)[places]
    return places.astype(np.int64)
