"""Changes that repeat the UUID of another one: the same change again, or a different one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from datetime import datetime
from decimal import Decimal, InvalidOperation
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.cdc.chunk import POSITION
from headgate.envelopes.datastream.changes import LOG_COLUMN_NAMES
from headgate.lake.parquet import ParquetRows, column_of
from headgate.schema.field_metadata import kept_apart_from

_UUID = "_uuid"
_COMPARED = ("_change_type", "_source_timestamp", "_order")
"""Metadata that is the same in every delivery: the file and the time of reading may differ."""

Reused = dict[str, list[int]]
"""Positions, by file, of changes whose UUID another change has."""


class KnownChanges:
    """The changes of a table that have landed, and those of the batch so far."""

    def __init__(
        self, landed: Sequence[pa.Table], table: Callable[[], pa.Schema], discards: bool
    ) -> None:
        """Begin with landed changes that a batch repeats.

        `table` returns the columns of the change log, and `discards` says whether its contract may
        have kept values out of it.
        """
        self._parts = list(landed)
        self._seen = {uuid for part in landed for uuid in part[_UUID].to_pylist()}
        self._table = table
        self._discards = discards

    @cached_property
    def _sources(self) -> Mapping[str, str]:
        """The source's column of each column of the log."""
        return {field.name: kept_apart_from(field) or field.name for field in self._table()}

    def take_new(self, rows: pa.Table) -> tuple[pa.Table, Reused]:
        """Return the changes that are new, and those that only reuse the UUID of another one.

        Changes that were delivered before are in neither.
        """
        uuids = rows[_UUID].to_pylist()
        if self._seen.isdisjoint(uuids) and len(set(uuids)) == len(uuids):
            self._seen.update(uuids)
            self._parts.append(rows)
            return rows, {}
        is_new = np.ones(len(rows), bool)
        for at, uuid in enumerate(uuids):
            is_new[at] = uuid not in self._seen
            self._seen.add(uuid)
        new = rows.filter(pa.array(is_new))
        self._parts.append(new)
        return new, self._reused(rows.filter(pa.array(~is_new)))

    def _reused(self, repeated: pa.Table) -> Reused:
        """Return the changes that equal none of the known ones with their UUID."""
        is_same = np.zeros(len(repeated), bool)
        for part in self._parts:
            for originals in _by_uuid(part, repeated[_UUID]):
                found = pc.index_in(repeated[_UUID], value_set=originals[_UUID].combine_chunks())
                at = np.flatnonzero(found.is_valid().to_numpy())
                rows, known = repeated.take(pa.array(at)), originals.take(found.drop_null())
                is_same[at] |= self._same(rows, known)
        reused: Reused = defaultdict(list)
        for row in repeated.filter(pa.array(~is_same)).select(["_file", POSITION]).to_pylist():
            reused[row["_file"] or ""].append(row[POSITION])
        return dict(reused)

    def _same(self, rows: pa.Table, known: pa.Table) -> np.ndarray:
        """Return which rows have the same contents as the known ones."""
        same = np.ones(len(rows), bool)
        for name in _COMPARED:
            same &= _equal(_columns(rows, [name]), _columns(known, [name]), False)
        here, there = self._payload_columns(rows), self._payload_columns(known)
        for source in {*here, *there}:
            # A value that was discarded, or whose column came later, is not known to differ.
            ignores_nulls = self._discards or source not in there
            ours, theirs = here.get(source, []), there.get(source, [])
            same &= _equal(_columns(rows, ours), _columns(known, theirs), ignores_nulls)
        return same

    def _payload_columns(self, rows: pa.Table) -> dict[str, list[str]]:
        """Return the columns by the source's column, whose types may be kept apart."""
        found: dict[str, list[str]] = defaultdict(list)
        for name in rows.column_names:
            if name not in LOG_COLUMN_NAMES and name != POSITION:
                found[self._sources.get(name, name)].append(name)
        return found


def read_changes(path: str, uuids: Set[str]) -> pa.Table | None:
    """Read the changes with some UUIDs from a file of a change log; None if it has none."""
    wanted = [uuid for uuid in column_of(path, _UUID) if uuid in uuids]
    if not wanted:
        return None
    file, values = ParquetRows(path), pa.array(wanted, pa.string())
    compared = {_UUID, *_COMPARED}
    names = [name for name in file.names if name in compared or name not in LOG_COLUMN_NAMES]
    found = [
        batch.filter(pc.is_in(batch[_UUID], value_set=values)) for batch in file.batches(names)
    ]
    return pa.Table.from_batches(found)


def _by_uuid(part: pa.Table, uuids: pa.ChunkedArray) -> Iterator[pa.Table]:
    """Yield the changes with some UUIDs in tables that have each UUID once."""
    rest = part.filter(pc.is_in(part[_UUID], value_set=uuids.combine_chunks()))
    while len(rest):
        first: dict[str, int] = {}
        for at, uuid in enumerate(rest[_UUID].to_pylist()):
            first.setdefault(uuid, at)
        is_first = np.zeros(len(rest), bool)
        is_first[list(first.values())] = True
        yield rest.filter(pa.array(is_first))
        rest = rest.filter(pa.array(~is_first))


def _columns(rows: pa.Table, names: Sequence[str]) -> list[pa.ChunkedArray]:
    return [rows[name] for name in names if name in rows.column_names]


def _equal(
    ours: Sequence[pa.ChunkedArray], theirs: Sequence[pa.ChunkedArray], ignores_nulls: bool
) -> np.ndarray | bool:
    """Return which rows have equal values; each column may be spread over several."""
    if len(ours) == len(theirs) == 1 and _is_comparable(ours[0].type, theirs[0].type):
        (one,), (other,) = ours, theirs
        equal = pc.equal(one, other).fill_null(ignores_nulls)
        equal = pc.or_(equal, pc.and_(one.is_null(), other.is_null()))
        if pa.types.is_floating(one.type):
            both_nan = pc.and_(pc.is_nan(one), pc.is_nan(other)).fill_null(False)
            equal = pc.or_(equal, both_nan)
        return np.asarray(equal.to_numpy(), bool)
    if not ours and not theirs:
        return True
    rows = zip(_values(ours), _values(theirs), strict=False)
    return np.array([_same_values(one, other, ignores_nulls) for one, other in rows], bool)


def _is_comparable(one: pa.DataType, other: pa.DataType) -> bool:
    return bool(one.equals(other)) and not pa.types.is_nested(one)


def _values(columns: Sequence[pa.ChunkedArray]) -> Iterator[list[Any]]:
    """Yield the values of each row that are not null."""
    lists = [_python_values(column) for column in columns]
    if not lists:
        while True:
            yield []
    for row in zip(*lists, strict=True):
        yield [value for value in row if value is not None]


def _python_values(column: pa.ChunkedArray) -> list[Any]:
    try:
        values: list[Any] = column.to_pylist()
        return values
    except (ValueError, OverflowError):  # a timestamp that Python cannot represent
        return [_Unknown() if scalar.is_valid else None for scalar in column]


class _Unknown:
    """A value that cannot be compared."""


_SCALARS = (bool, int, float, Decimal, str)


def _same_values(ours: list[Any], theirs: list[Any], ignores_nulls: bool) -> bool:
    if not ours or not theirs:
        return ignores_nulls or ours == theirs
    return any(_same_value(one, other) for one in ours for other in theirs)


def _same_value(one: Any, other: Any) -> bool:
    """Return whether values of maybe different types are equal, or cannot be compared.

    Types of files without a schema are inferred, so that a change can be delivered again with
    another type.
    """
    match one, other:
        case (dict(), dict()):
            return all(_same_value(one.get(key), other.get(key)) for key in {*one, *other})
        case (list(), list()):
            pairs = zip(one, other, strict=False)
            return len(one) == len(other) and all(_same_value(*pair) for pair in pairs)
        case (datetime(), datetime()):
            return (one.tzinfo is None) != (other.tzinfo is None) or one == other
        case _ if isinstance(one, _SCALARS) and isinstance(other, _SCALARS):
            return _number(one) == _number(other)
        case _:
            return type(one) is not type(other) or one == other or isinstance(one, _Unknown)


def _number(value: Any) -> Decimal | str:
    """Return a number, also if it is given as text; other text as it is."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    try:
        number = Decimal(text)
    except InvalidOperation:
        return text
    return number if number.is_finite() else text.lower()
