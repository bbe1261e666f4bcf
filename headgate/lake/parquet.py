"""One Parquet file in a table's folder, ready to be named by a commit."""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import LocalFileSystem

from headgate.lake.staged import StagedFile
from headgate.schema.conform import conform_chunked
from headgate.schema.fit import Fit
from headgate.schema.names import safe_name

_MOST_COLUMNS = 40
_LONGEST_TEXT = 32
_MARK = uuid.uuid4().hex
_EXACT = re.compile(f'"{_MARK}([0-9.-]+){_MARK}"')
"""JSON numbers have any number of digits, Python's have not: a rounded bound would hide rows."""
_LAST_CHARACTER = "\U0010ffff"


def file_statistics(table: pa.Table) -> str:
    """The statistics of a file's rows in the form of a Delta log entry."""
    minima: dict[str, Any] = {}
    maxima: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    all_bounded = True
    for field, column in islice(zip(table.schema, table.columns, strict=True), _MOST_COLUMNS):
        if pa.types.is_nested(field.type):
            continue
        nulls[field.name] = column.null_count
        if column.null_count == len(column) or pa.types.is_binary(field.type):
            continue
        bounds = _bounds(column)
        if bounds is None:
            all_bounded = False
        else:
            minima[field.name], maxima[field.name] = bounds
    known: dict[str, Any] = {"numRecords": table.num_rows, "nullCount": nulls}
    if all_bounded:
        # delta-rs takes a column that has no bounds beside others that do for an empty one.
        known |= {"minValues": minima, "maxValues": maxima}
    # delta-rs reads the escapes of characters beyond U+1FFFF as other, smaller ones.
    text = json.dumps(known, ensure_ascii=False, default=_plain)
    return _EXACT.sub(r"\1", text) if _MARK in text else text


def _bounds(column: pa.ChunkedArray) -> tuple[Any, Any] | None:
    """Values that no other one is below or above; None where JSON has none for them."""
    if pa.types.is_floating(column.type) and not pc.all(pc.is_finite(column)).as_py():
        return None
    least_and_greatest = pc.min_max(column)
    try:
        low, high = least_and_greatest["min"].as_py(), least_and_greatest["max"].as_py()
    except (OverflowError, ValueError):  # a moment beyond Python's calendar
        return None
    return _lower(low), _upper(high)


def _lower(value: Any) -> Any:
    return value[:_LONGEST_TEXT] if isinstance(value, str) else value


def _upper(value: Any) -> Any:
    """A text cut short must still be no smaller than the whole one."""
    if not isinstance(value, str) or value[_LONGEST_TEXT:][:1] in ("", _LAST_CHARACTER):
        return value
    return value[:_LONGEST_TEXT] + _LAST_CHARACTER


def _plain(value: Any) -> str:
    if isinstance(value, Decimal):
        return f"{_MARK}{value:f}{_MARK}"
    return str(value.isoformat().replace("+00:00", "Z"))


_LOCAL = LocalFileSystem()
_LARGE = 20_000
"""Rows from which on dictionaries and a thorough compression are worth their time."""


def write_parquet(
    lake: str,
    table: str,
    name: str,
    rows: pa.Table,
    *,
    route: str | None = None,
    schema_ids: tuple[int, ...] = (),
    partition: Mapping[str, str] | None = None,
    reasons: Mapping[str, int] | None = None,
) -> StagedFile:
    for column, value in (partition or {}).items():
        name = f"{column}={safe_name(value)}/{name}"
    path = Path(lake, table, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    large = rows.num_rows >= _LARGE
    pq.write_table(
        rows,
        str(path),
        filesystem=_LOCAL,
        compression="zstd" if large else "snappy",
        use_dictionary=large or ["_topic"],
        # In a file of one page, Delta's own statistics say all that Parquet's would.
        write_statistics=large,
        store_schema=False,
        coerce_timestamps="us",
    )
    return StagedFile(
        table=table,
        path=name,
        size=os.path.getsize(path),
        rows=rows.num_rows,
        statistics=file_statistics(rows),
        schema_bytes=rows.schema.remove_metadata().serialize().to_pybytes(),
        route=route,
        schema_ids=schema_ids,
        partition=partition,
        reasons=reasons,
    )


def open_parquet(path: str) -> pq.ParquetFile:
    """Open a Parquet file of the lake."""
    return pq.ParquetFile(path)


def read_staged(lake: str, file: StagedFile) -> pa.Table:
    """Read the rows of a staged file."""
    return pq.ParquetFile(Path(lake, file.table, file.path)).read()


def refit_file(lake: str, file: StagedFile, fitted: Fit) -> StagedFile:
    """The same rows under the table's names and types, in a file of its own."""
    rows = read_staged(lake, file)
    columns = [
        conform_chunked(rows.column(one.source), one.type) if one.type else rows.column(one.source)
        for one in fitted.mappings
    ]
    refitted = pa.table(columns, names=[one.target for one in fitted.mappings])
    name = file.path.removesuffix(".parquet") + "-fitted.parquet"
    written = write_parquet(lake, file.table, name, refitted)
    return replace(
        file,
        path=written.path,
        size=written.size,
        statistics=written.statistics,
        schema_bytes=written.schema_bytes,
    )


def stage_merge(lake: str, table: str, rows: pa.Table) -> str:
    """Write changes to a file that Spark merges into a table, and return its address."""
    folder = Path(lake, "_staged", "merges")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{table}-{uuid.uuid4()}.parquet"
    pq.write_table(rows, path)
    return str(path)


def delete_file(path: str) -> None:
    """Delete a file that no commit names."""
    Path(path).unlink(missing_ok=True)


def delete_staged(lake: str, file: StagedFile) -> None:
    """Delete a staged file that will not be committed."""
    delete_file(str(Path(lake, file.table, file.path)))


def is_staged(lake: str, file: StagedFile) -> bool:
    """Whether a staged file is still there."""
    return Path(lake, file.table, file.path).exists()


def column_of(path: str, column: str) -> list[Any]:
    """Read one column of a file; nothing where the file does not have it."""
    file = pq.ParquetFile(path)
    if column not in file.schema_arrow.names:
        return []
    return list(file.read([column])[column].to_pylist())
