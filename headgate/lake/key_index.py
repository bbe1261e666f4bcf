"""Finds the rows of a file, or the files of a table, that have one of some keys."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_MANY = 4_096
"""Values that do not fit into the nearest cache any more."""
_TRUNCATED = timedelta(milliseconds=1)
"""What statistics of timestamps may lack: Spark writes them in milliseconds."""


class KeyIndex:
    """Finds the keys of a table, in which each is unique. Null is equal to null."""

    def __init__(self, rows: pa.Table, key: Sequence[str]) -> None:
        self.key = tuple(key)
        self._columns: list[tuple[pa.Array, np.ndarray]] = []
        """Distinct values of each column, and the codes of all keys up to it."""
        codes = np.zeros(len(rows), np.int64)
        for name in key:
            column = rows[name].combine_chunks()
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
            place = _places(column, values)
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
        """Values of the first column."""
        return sorted(self._columns[0][0].drop_null().to_pylist())

    def may_be_in(self, least: Any, greatest: Any, nulls: int | None) -> bool:
        """Whether rows may have any of the keys, given statistics of the first key column."""
        if self._columns[0][0].null_count and nulls != 0:
            return True
        if least is None or greatest is None:
            return nulls is None or bool(self._in_order)
        if isinstance(greatest, datetime):
            greatest += _TRUNCATED
        at = bisect_left(self._in_order, least)
        return at < len(self._in_order) and bool(self._in_order[at] <= greatest)


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
