"""The merge engine: merges changes into a table by rewriting the files that have their keys.

Files without any of the keys stay as they are. Most are not even read: the log has the least and
the greatest key of each file, and each file of a large table has a range of keys.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.lake.commit import Commit, Committer, FoundRows, Mark, MergeRule
from headgate.lake.kept_rows import KeptRows
from headgate.lake.key_index import KeyIndex, bounds_of
from headgate.lake.parquet import stage_rows
from headgate.lake.snapshot import Snapshot
from headgate.lake.staged import StagedFile
from headgate.schema.conform import conform, conform_chunked

FILE_ROWS = 250_000
"""Rows of the files of a large table: small ones cost little to rewrite, but many cost to list."""
FILE_BYTES = 16 << 20
"""The same in bytes."""
MEMORY_PER_FILE = 4 * FILE_BYTES
"""What the rows of such a file take in memory, at most."""
_MAX_SMALL_FILES = 8
"""Files of less than half that size that a table may have before they are combined."""
_MAX_NEAR = 0.25
"""Share of a file's rows between the least and the greatest key of its changes, to split off."""
_MIN_NEAR = 10
"""Changes of a file for that: fewer may be near each other by chance."""
_MAX_THREADS = 4
_SAMPLED = 200
"""Keys of each file from which ranges, and the rows around changes, are estimated."""


_One = TypeVar("_One")
_Result = TypeVar("_Result")


def is_small(table: Snapshot) -> bool:
    """Whether a table would fit into one file: a merge combines what it has."""
    rows = table.row_counts.values()
    return table.bytes <= FILE_BYTES and None not in rows and sum(filter(None, rows)) <= FILE_ROWS


def find_rows(
    table: Snapshot, keys: KeyIndex, columns: Sequence[str], kept: KeptRows | None = None
) -> FoundRows:
    """Return the rows of a table that have any of the keys."""
    candidates = _candidates(table, keys)
    # With as many keys as files, each file probably has one.
    of_all = None if len(keys) >= len(candidates) else keys.key
    kept = KeptRows() if kept is None else kept
    kept.drop_replaced(table)

    def found_in(path: str) -> tuple[np.ndarray, pa.Table]:
        known = kept.get(table, path)
        rows = table.file_rows(path, of_all) if known is None else known
        places = np.flatnonzero(keys.find(rows) >= 0)
        if not len(places):
            return places, empty
        if known is None:
            rows = rows if of_all is None else table.file_rows(path)
            kept.put(table, path, rows)
        return places, rows.select(columns).take(pa.array(places))

    empty = table.selected(columns).empty_table()
    found = _map(found_in, candidates)
    places = {path: places for path, (places, _) in zip(candidates, found, strict=True)}
    rows = pa.concat_tables([empty, *(rows for _, rows in found)])
    return FoundRows(table, rows, places, kept)


def replace_rows(
    committer: Committer,
    table: str,
    rows: pa.Table,
    key: Sequence[str],
    *marks: Mark,
    required_marks: Mapping[str, int | None] | None = None,
) -> int:
    """Replace all rows of a table."""
    parts = split_into_files(rows, key)
    files = tuple(stage_rows(committer.lake, table, part, will_be_rewritten=True) for part in parts)
    required = required_marks or {}
    return committer.commit(
        Commit(table, rows.schema, files, marks, "replace", required_marks=required)
    )


def split_into_files(rows: pa.Table, key: Sequence[str]) -> Iterator[pa.Table]:
    """Split rows into files that cost little to rewrite, each with a range of keys."""
    files = max(1, round(rows.nbytes / MEMORY_PER_FILE), round(len(rows) / FILE_ROWS))
    size = max(1, -(-len(rows) // files))
    for part in _ranges(rows, key, files):
        pieces = max(1, round(len(part) / size))
        each = max(1, -(-len(part) // pieces))
        for start in range(0, len(part), each):
            yield part.slice(start, each)


def _ranges(rows: pa.Table, key: Sequence[str], number: int) -> Iterator[pa.Table]:
    """Split rows by the first column of their key, in a sample of which the ranges are equal.

    That is several times faster than sorting them. Rows with null are in the last part.
    """
    if number == 1 or not key or pa.types.is_nested(rows.schema.field(key[0]).type):
        yield rows
        return
    column = rows[key[0]]
    chosen = np.random.default_rng(len(rows)).integers(0, len(rows), number * _SAMPLED)
    sample = column.take(pa.array(chosen)).combine_chunks().drop_null()
    ordered = sample.take(pc.sort_indices(sample))
    cuts = [ordered[len(ordered) * at // number] for at in range(1, number)] if len(ordered) else []
    part = np.zeros(len(rows), np.int16)
    for cut in cuts:
        part += ~_true(pc.less(column, cut))
    order = np.argsort(part, kind="stable")
    ends = np.searchsorted(part[order], np.arange(number), side="right")
    for start, end in pairwise([0, *ends.tolist()]):
        yield rows.take(pa.array(order[start:end]))


@dataclass(frozen=True)
class Rewritten:
    """New files of a table, the files that they replace, and how many rows that changes."""

    files: Sequence[StagedFile]
    removed: Mapping[str, int]
    """Sizes by path."""
    inserted: int
    updated: int
    deleted: int


def merge_into_files(
    table: Snapshot, changes: pa.Table, rule: MergeRule, found: FoundRows | None = None
) -> Rewritten:
    """Merge changes into new files; the table has them once they are committed."""
    merge = _Merge(table, changes, rule, found)
    candidates = list(merge.found) or _candidates(table, merge.keys)
    results = _map(merge.apply, candidates)
    inserted = merge.inserted(results)
    touched = {one.path: one for one in results if one.is_changed}
    combined = merge.to_combine(touched, bool(len(inserted)))
    kept = _map(table.file_rows, [path for path in combined if path not in touched])
    left = [one.rows for one in touched.values() if one.rows is not None]
    together = pa.concat_tables([*kept, *left, inserted])
    files = [file for one in touched.values() for file in one.files]
    files += _map(merge.write, list(split_into_files(together, rule.key)))
    return Rewritten(
        files,
        {path: table.sizes[path] for path in (*touched, *combined)},
        len(inserted),
        sum(one.updated for one in results),
        sum(one.deleted for one in results),
    )


@dataclass(frozen=True)
class _Applied:
    """Changes that were applied to one file."""

    path: str
    found: np.ndarray
    """Places of the changes whose keys the file has."""
    updated: int = 0
    deleted: int = 0
    rows: pa.Table | None = None
    """What is left to write together with others: of a small file, or split off a large one."""
    files: Sequence[StagedFile] = ()

    @property
    def is_changed(self) -> bool:
        return bool(self.updated or self.deleted)


class _Merge:
    """Changes, each of a key of its own, and what becomes of the rows that they meet."""

    def __init__(
        self, table: Snapshot, changes: pa.Table, rule: MergeRule, found: FoundRows | None
    ) -> None:
        self.table, self.changes, self.rule = table, changes, rule
        self.keys = KeyIndex(changes, rule.key)
        self.found = found.by_file() if found is not None else {}
        self._kept = found.kept if found is not None else KeptRows(limit=0)
        self._read: dict[str, pa.Table] = {}
        self._gone = _flags(changes, rule.deleted, default=False)

    def apply(self, path: str) -> _Applied:
        """Apply the changes to one file."""
        place, rows = self.found.get(path) or self._compared(path)
        change = self.keys.find(rows)
        met = np.flatnonzero(change >= 0)
        place, change = place[met], change[met]
        counts = self._counts(rows.take(pa.array(met)), change)
        gone = counts & self._gone[change]
        updated = counts & ~self._gone[change]
        if not counts.any():
            self._read.pop(path, None)
            return _Applied(path, change)
        applied = _Applied(path, change, int(updated.sum()), int(gone.sum()))
        left = self._left(path, place, change, updated, gone)
        if self._is_small(path):
            return replace(applied, rows=left)
        near, far = _split_near(left, self.rule.key, self.changes.take(pa.array(change[counts])))
        parts = (part for side in far for part in split_into_files(side, self.rule.key))
        return replace(applied, rows=near, files=[self.write(part) for part in parts])

    def _compared(self, path: str) -> tuple[np.ndarray, pa.Table]:
        """Return all rows of a file, at least in the columns that changes are compared with."""
        rule = self.rule
        if len(self.keys) >= len(self.table.sizes):
            # Each file probably has one of the keys, and is read as a whole anyway.
            rows = self._read[path] = self.table.file_rows(path)
        else:
            compared = [*rule.key, *filter(None, (rule.newer, rule.only[0] if rule.only else None))]
            rows = self.table.file_rows(path, list(dict.fromkeys(compared)))
        return np.arange(len(rows)), rows

    def _counts(self, rows: pa.Table, change: np.ndarray) -> np.ndarray:
        """Return which of the changes count, given the rows that they meet."""
        counts = np.ones(len(change), bool)
        if self.rule.newer is not None:
            newer = self.changes[self.rule.newer].take(pa.array(change))
            counts &= _true(pc.greater(newer, rows[self.rule.newer]))
        if self.rule.only is not None:
            column, value = self.rule.only
            counts &= _true(pc.equal(rows[column], value))
        return counts

    def _left(
        self,
        path: str,
        place: np.ndarray,
        change: np.ndarray,
        updated: np.ndarray,
        gone: np.ndarray,
    ) -> pa.Table:
        """Return the rows of a file after the changes."""
        rows = self._read.pop(path, None)
        if rows is None:
            rows = self._kept.take(self.table, path)
        if rows is None:
            rows = self.table.file_rows(path)
        origin = np.arange(len(rows))
        origin[place[updated]] = len(rows) + change[updated]
        kept = np.ones(len(rows), bool)
        kept[place[gone]] = False
        taken, filtered = pa.array(origin[kept]), pa.array(kept)
        # Rows have the keys of their changes already, and keep columns that changes lack.
        changed = {*(self.rule.set or self.changes.column_names)} - {*self.rule.key}
        columns: list[pa.Array | pa.ChunkedArray] = []
        for name in rows.column_names:
            if name in changed and updated.any():
                old, new = rows[name].combine_chunks(), self.changes[name].combine_chunks()
                columns.append(_updated(old, new, np.arange(len(rows))[kept], taken))
            else:
                columns.append(rows[name].filter(filtered) if gone.any() else rows[name])
        return pa.table(columns, schema=rows.schema)

    def inserted(self, results: Sequence[_Applied]) -> pa.Table:
        """Return the changes of keys that no file has, as rows."""
        new = ~self._gone & _flags(self.changes, self.rule.insert, default=self.rule.inserts)
        for one in results:
            new[one.found] = False
        schema = self.table.schema
        if not new.any():
            return schema.empty_table()
        rows = self.changes.filter(pa.array(new))
        columns = [
            conform_chunked(rows[field.name], field.type)
            if field.name in rows.column_names
            else pa.nulls(len(rows), field.type)
            for field in schema
        ]
        return pa.table(columns, schema=schema)

    def to_combine(self, touched: Mapping[str, _Applied], inserts: bool) -> list[str]:
        """Return the small files to combine into larger ones: those that are rewritten anyway, and
        all of them if there are too many."""
        small = [path for path in self.table.sizes if self._is_small(path)]
        if not touched and not inserts:
            return []
        if is_small(self.table) or len(small) + inserts > _MAX_SMALL_FILES:
            return small
        return [path for path in small if path in touched]

    def write(self, rows: pa.Table) -> StagedFile:
        file = stage_rows(self.table.lake, self.table.table, rows, will_be_rewritten=True)
        self._kept.put(self.table, file.path, rows)
        return file

    def _is_small(self, path: str) -> bool:
        rows = self.table.row_counts[path]
        return rows is not None and rows < FILE_ROWS / 2 and self.table.sizes[path] < FILE_BYTES / 2


def _split_near(
    rows: pa.Table, key: Sequence[str], changes: pa.Table
) -> tuple[pa.Table | None, list[pa.Table]]:
    """Split off the rows around changes if they are few: the next changes are often near them.

    Then these merges rewrite a small file, and not the other rows.
    """
    column = rows[key[0]]
    if len(changes) < _MIN_NEAR or not len(rows) or pa.types.is_nested(column.type):
        return None, [rows]
    bounds = pc.min_max(changes[key[0]])
    sample = column.take(pa.array(np.linspace(0, len(rows) - 1, _SAMPLED, dtype=np.int64)))
    if _between(sample, bounds).mean() > _MAX_NEAR:
        return None, [rows]
    near = _between(column, bounds)
    if near.mean() > _MAX_NEAR:
        return None, [rows]
    below = _true(pc.less(column, bounds["min"]))
    sides = (below, ~(near | below))
    return rows.filter(pa.array(near)), [rows.filter(pa.array(side)) for side in sides]


def _between(values: pa.ChunkedArray, bounds: pa.StructScalar) -> np.ndarray:
    """Return which values are neither less nor greater than bounds; null is not."""
    outside = _true(pc.less(values, bounds["min"])) | _true(pc.greater(values, bounds["max"]))
    return np.asarray(~outside)


def _candidates(table: Snapshot, keys: KeyIndex) -> list[str]:
    """Return the files that may have any of the keys, according to their statistics."""
    if is_small(table):
        return list(table.sizes)
    known = table.statistics()
    names = [f"{of}.{keys.key[0]}" for of in ("min", "max", "null_count")]
    facts = [
        bounds_of(known[name]) if name in known.column_names else [None] * len(known)
        for name in names
    ]
    folder = f"{table.url}/"
    return [
        path.removeprefix(folder)
        for path, *bounds in zip(known["path"].to_pylist(), *facts, strict=True)
        if keys.may_be_in(*bounds)
    ]


def _updated(old: pa.Array, new: pa.Array, place: np.ndarray, taken: pa.Array) -> pa.Array:
    """Take values from the old ones and, after them, the new ones.

    Fields of structs that the new values lack are those of the old ones at their place.
    """
    if not pa.types.is_struct(old.type) or _has_fields(new.type, old.type):
        return pa.concat_arrays([old, conform(new, old.type)]).take(taken)
    of_old, of_new = dict(zip(_names(old.type), old.flatten(), strict=True)), new.flatten()
    children = dict(zip(_names(new.type), of_new, strict=True))
    columns = [
        _updated(of_old[field.name], children[field.name], place, taken)
        if field.name in children
        else of_old[field.name].take(pa.array(place))
        for field in old.type
    ]
    is_null = pa.concat_arrays([old.is_null(), new.is_null()]).take(taken)
    return pa.StructArray.from_arrays(columns, fields=list(old.type), mask=is_null)


def _has_fields(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a type has all fields of another, also of structs inside of structs."""
    if not (pa.types.is_struct(kind) and pa.types.is_struct(wanted)):
        return True
    types = {field.name: field.type for field in kind}
    return all(
        field.name in types and _has_fields(types[field.name], field.type) for field in wanted
    )


def _names(kind: pa.DataType) -> list[str]:
    return [field.name for field in kind]


def _flags(changes: pa.Table, column: str | None, default: bool) -> np.ndarray:
    if column is None:
        return np.full(len(changes), default)
    return _true(changes[column])


def _true(values: pa.ChunkedArray) -> np.ndarray:
    """Return where values are true; null is not."""
    return np.asarray(pc.fill_null(values, False), bool)


def _map(function: Callable[[_One], _Result], each: Sequence[_One]) -> list[_Result]:
    """Call a function in threads, unless there is little to do."""
    if len(each) <= 1:
        return list(map(function, each))
    with ThreadPoolExecutor(min(_MAX_THREADS, os.cpu_count() or 1), "merge") as pool:
        return list(pool.map(function, each))
