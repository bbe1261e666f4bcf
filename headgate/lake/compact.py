"""Compaction: many small files of a table become few large ones, with the same rows.

Files of a similar size are combined, so that each row is rewritten a few times in its life, however
many batches a table gets. Rows stay in their order, and a file has a range of times and offsets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from headgate.lake.parquet import stage_rows
from headgate.lake.snapshot import DataFile, Snapshot
from headgate.lake.staged import StagedFile

_FRACTIONS = (2, 8, 64, None)
"""Of the wanted size. Files between two of them are of a similar size."""
_MAX_ROWS = 2_000_000
"""Rows that are combined into one file, at most: they are in memory."""


@dataclass(frozen=True)
class Compacted:
    """Files that were combined, or would be."""

    files: int = 0
    bytes: int = 0
    into: int = 0
    groups: tuple[tuple[str, ...], ...] = ()
    """Paths of the files, by the file that they become; empty if Spark combined them."""

    @classmethod
    def of(cls, groups: Sequence[Sequence[DataFile]]) -> Compacted:
        files = [file for group in groups for file in group]
        paths = tuple(tuple(file.path for file in group) for group in groups)
        return cls(len(files), sum(file.size for file in files), len(groups), paths)


def can_combine(table: Snapshot) -> bool:
    """Whether the files of a table say all about their rows, but for the value of a partition."""
    return table.is_plain and table.has_simple_partitions


def files_to_combine(table: Snapshot, size: int, fewest: int = 2) -> list[list[DataFile]]:
    """Return groups of files, each to be combined into one of up to a number of bytes.

    Files are combined once there are at least `fewest` of a similar size. Those of tables whose
    files do not say all about their rows are left to Spark.
    """
    if not can_combine(table):
        return []
    by_partition: dict[str | None, list[DataFile]] = defaultdict(list)
    for file in table.data_files:
        if file.partition is not None or not table.partition_columns:
            by_partition[file.partition].append(file)
    return [
        group
        for files in by_partition.values()
        for group in _groups(_small(files, size, fewest), size)
        if len(group) > 1
    ]


def _small(files: Sequence[DataFile], size: int, fewest: int) -> list[DataFile]:
    """Return the files below the largest size of which there are enough."""
    for one, smaller in pairwise(_FRACTIONS):
        below = [file for file in files if file.size < size // (one or 1)]
        least = size // smaller if smaller else 0
        if sum(file.size >= least for file in below) >= fewest:
            return below
    return []


def _groups(files: Sequence[DataFile], size: int) -> Iterator[list[DataFile]]:
    """Divide files, in the order of their rows, into groups of up to a number of bytes."""
    group: list[DataFile] = []
    for file in sorted(files, key=lambda one: (one.modified, one.path)):
        larger = [*group, file]
        if sum(one.size for one in larger) > size or sum(one.rows for one in larger) > _MAX_ROWS:
            yield group
            larger = [file]
        group = larger
    yield group


def combine_files(table: Snapshot, files: Sequence[DataFile]) -> StagedFile:
    """Write the rows of files to a new one."""
    rows = pa.concat_tables(table.file_rows(file.path) for file in files).combine_chunks()
    partition = dict.fromkeys(table.partition_columns, files[0].partition or "")
    return stage_rows(
        table.lake, table.table, rows.drop_columns([*partition]), partition=partition or None
    )
