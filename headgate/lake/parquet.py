"""Parquet files in the folders of tables, with the statistics of the Delta log."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import accumulate, islice
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headgate.lake.staged import StagedFile
from headgate.lake.storage import open_input, open_output
from headgate.schema.names import safe_name

_MAX_COLUMNS = 40
_MAX_TEXT = 64
"""Characters of a text in statistics: all of an order."""
_MARK = uuid.uuid4().hex
_EXACT = re.compile(f'"{_MARK}([0-9.-]+){_MARK}"')
"""Decimals as JSON numbers with all digits: with a rounded bound, readers would skip rows."""
_LAST_CHARACTER = "\U0010ffff"


_ColumnStatistics = tuple[int, Any, Any]
"""Number of nulls, the least and the greatest value of a column."""


def file_statistics(
    table: pa.Table,
    columns: Sequence[str] | None = None,
    known: Mapping[str, _ColumnStatistics] | None = None,
) -> str:
    """Return the statistics of rows, or only of some columns, in the form of the Delta log."""
    minima: dict[str, Any] = {}
    maxima: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    all_bounded = True
    for name in islice(table.column_names if columns is None else columns, _MAX_COLUMNS):
        if known and name in known:
            nulls[name], least, greatest = known[name]
            minima[name], maxima[name] = _lower(least), _upper(greatest)
            continue
        column = table.column(name)
        if pa.types.is_nested(column.type):
            continue
        nulls[name] = column.null_count
        if column.null_count == len(column) or pa.types.is_binary(column.type):
            continue
        bounds = _bounds(column)
        if bounds is None:
            all_bounded = False
        else:
            minima[name], maxima[name] = _lower(bounds[0]), _upper(bounds[1])
    found: dict[str, Any] = {"numRecords": table.num_rows, "nullCount": nulls}
    if all_bounded:
        # delta-rs assumes that a column without bounds is empty if other columns have bounds.
        found |= {"minValues": minima, "maxValues": maxima}
    # delta-rs misreads escapes of characters beyond U+1FFFF as smaller characters.
    text = json.dumps(found, ensure_ascii=False, default=_json_value)
    return _EXACT.sub(r"\1", text) if _MARK in text else text


def _bounds(column: pa.ChunkedArray) -> tuple[Any, Any] | None:
    """Return the least and the greatest value of a column; None if JSON cannot represent them."""
    if pa.types.is_floating(column.type) and not pc.all(pc.is_finite(column)).as_py():
        return None
    least_and_greatest = pc.min_max(column)
    try:
        return least_and_greatest["min"].as_py(), least_and_greatest["max"].as_py()
    except (OverflowError, ValueError):  # a timestamp that Python cannot represent
        return None


_BOUNDED_AS_WRITTEN = frozenset(
    kind.id
    for kind in (
        pa.string(),
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
        pa.timestamp("us"),
        pa.bool_(),
        pa.date32(),
    )
)
"""Types whose bounds in Parquet are those of the Delta log. The bounds of floats ignore NaN."""
_EPOCH = datetime(1970, 1, 1)


def _written_statistics(
    rows: pa.Table, written: pq.FileMetaData, columns: Sequence[str] | None
) -> dict[str, _ColumnStatistics]:
    """Return statistics that the footer of a file has: Arrow would compute them a second time."""
    groups = [written.row_group(number) for number in range(written.num_row_groups)]
    found: dict[str, _ColumnStatistics] = {}
    places = accumulate(map(_leaf_count, rows.schema.types), initial=0)
    for at, name, kind in zip(places, rows.column_names, rows.schema.types, strict=False):
        if kind.id not in _BOUNDED_AS_WRITTEN or (columns and name not in columns):
            continue
        several = [group.column(at).statistics for group in groups]
        if several and all(one is not None and one.has_min_max for one in several):
            with suppress(OverflowError, ValueError):  # a timestamp that Python cannot represent
                found[name] = _sum_statistics(several, kind)
    return found


def _leaf_count(kind: pa.DataType) -> int:
    """Return the number of columns of a file that a column of this type becomes."""
    if not pa.types.is_nested(kind):
        return 1
    return sum(_leaf_count(kind.field(at).type) for at in range(kind.num_fields))


def _sum_statistics(several: Sequence[pq.Statistics], kind: pa.DataType) -> _ColumnStatistics:
    nulls = sum(one.null_count for one in several)
    if not pa.types.is_timestamp(kind):
        return nulls, min(one.min for one in several), max(one.max for one in several)
    # Arrow takes several times as long to make a time of a number.
    bounds = min(one.min_raw for one in several), max(one.max_raw for one in several)
    least, greatest = (_EPOCH + timedelta(microseconds=one) for one in bounds)
    zone = UTC if kind.tz else None
    return nulls, least.replace(tzinfo=zone), greatest.replace(tzinfo=zone)


def _lower(value: Any) -> Any:
    return value[:_MAX_TEXT] if isinstance(value, str) else value


def _upper(value: Any) -> Any:
    """Return an upper bound; a truncated text must not be smaller than the whole one."""
    if not isinstance(value, str) or value[_MAX_TEXT:][:1] in ("", _LAST_CHARACTER):
        return value
    return value[:_MAX_TEXT] + _LAST_CHARACTER


def _json_value(value: Any) -> str:
    if isinstance(value, Decimal):
        return f"{_MARK}{value:f}{_MARK}"
    return str(value.isoformat().replace("+00:00", "Z"))


_LARGE_FILE_ROWS = 20_000
"""Number of rows from which on dictionaries and strong compression pay off."""
_SAMPLE_ROWS = 4_096


def _with_dictionary(rows: pa.Table) -> bool | list[str]:
    """Return the columns whose values repeat: for others, a dictionary costs time for nothing."""
    if _has_nested(rows):
        return True
    sample = rows.slice(0, _SAMPLE_ROWS)
    counts = {name: pc.count_distinct(sample[name]).as_py() for name in sample.column_names}
    return [name for name, count in counts.items() if count < 0.9 * len(sample)]


def _has_nested(rows: pa.Table) -> bool:
    """Whether the columns of a file are not those of the rows, but what is inside of them."""
    return any(pa.types.is_nested(kind) for kind in rows.schema.types)


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
    statistics_of: Sequence[str] | None = None,
    will_be_rewritten: bool = False,
) -> StagedFile:
    """Write rows to a file in a table's folder.

    A file that is rewritten again and again is compressed less.
    """
    for column, value in (partition or {}).items():
        name = f"{column}={safe_name(value)}/{name}"
    large = rows.num_rows >= _LARGE_FILE_ROWS
    with open_output(f"{lake}/{table}/{name}") as file:
        with pq.ParquetWriter(
            file,
            rows.schema,
            compression="zstd" if large and not will_be_rewritten else "snappy",
            use_dictionary=_with_dictionary(rows) if large else ["_topic"],
            store_schema=False,
            coerce_timestamps="us",
        ) as written:
            written.write_table(rows)
        size = file.tell()
    known = _written_statistics(rows, written.writer.metadata, statistics_of)
    return StagedFile(
        table=table,
        path=name,
        size=size,
        rows=rows.num_rows,
        statistics=file_statistics(rows, statistics_of, known),
        schema_bytes=rows.schema.remove_metadata().serialize().to_pybytes(),
        route=route,
        schema_ids=schema_ids,
        partition=partition,
        reasons=reasons,
    )


def stage_rows(
    lake: str,
    table: str,
    rows: pa.Table,
    *,
    partition: Mapping[str, str] | None = None,
    statistics_of: Sequence[str] | None = None,
    will_be_rewritten: bool = False,
) -> StagedFile:
    """Write rows to a file for the next commit to a table."""
    return write_parquet(
        lake,
        table,
        f"part-{uuid.uuid4()}.parquet",
        rows,
        partition=partition,
        statistics_of=statistics_of,
        will_be_rewritten=will_be_rewritten,
    )


class ParquetRows:
    """The rows of a Parquet file of the lake.

    Spark writes timestamps as INT96, without a zone. Read as nanoseconds, which is pyarrow's
    default, they would overflow before 1677 and after 2262. Here they are microseconds in UTC.
    """

    def __init__(self, path: str) -> None:
        self._file = pq.ParquetFile(open_input(path), coerce_int96_timestamp_unit="us")
        leaves = (column.physical_type for column in _leaves(self._file))
        types = {field.name: _in_utc(field.type, leaves) for field in self._file.schema_arrow}
        self._instants = {
            field.name: types[field.name]
            for field in self._file.schema_arrow
            if not field.type.equals(types[field.name])
        }
        """Types of the columns with INT96."""
        self.names: list[str] = self._file.schema_arrow.names

    def batches(
        self, columns: Sequence[str] | None = None, rows: int = 1 << 16
    ) -> Iterator[pa.RecordBatch]:
        """Read columns of the file, in order, a number of rows at a time."""
        for batch in self._file.iter_batches(columns=columns, batch_size=rows):
            yield self._converted(batch)

    def row_groups(self) -> Iterator[pa.Table]:
        """Read all columns, one row group at a time."""
        for group in range(self._file.num_row_groups):
            yield self._converted(self._file.read_row_group(group))

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Read all rows."""
        return self._converted(self._file.read(columns=columns))

    def _converted(self, rows: _Rows) -> _Rows:
        for name, kind in self._instants.items():
            at = rows.schema.get_field_index(name)
            if at >= 0:
                field = rows.schema.field(at).with_type(kind)
                rows = rows.set_column(at, field, rows.column(at).cast(kind))
        return rows


_Rows = TypeVar("_Rows", pa.Table, pa.RecordBatch)


def _leaves(file: pq.ParquetFile) -> Iterator[pq.ColumnSchema]:
    schema = file.metadata.schema
    return (schema.column(at) for at in range(len(schema)))


def _in_utc(kind: pa.DataType, leaves: Iterator[str]) -> pa.DataType:
    """Return a type with UTC for all leaves that are INT96; leaves are given in their order."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_in_utc(field.type, leaves)) for field in kind])
    if pa.types.is_map(kind):
        key = _in_utc(kind.key_type, leaves)
        return pa.map_(key, kind.item_field.with_type(_in_utc(kind.item_type, leaves)))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(kind.value_field.with_type(_in_utc(kind.value_type, leaves)))
    return pa.timestamp("us", "UTC") if next(leaves) == "INT96" else kind


def stage_merge(lake: str, table: str, rows: pa.Table) -> str:
    """Write changes to a file that Spark merges into a table, and return its path."""
    path = f"{lake}/_staged/merges/{table}-{uuid.uuid4()}.parquet"
    with open_output(path) as file:
        pq.write_table(rows, file)
    return path


def column_of(path: str, column: str) -> list[Any]:
    """Read one column of a file; return an empty list if the file does not have it."""
    file = ParquetRows(path)
    if column not in file.names:
        return []
    return list(file.read([column])[column].to_pylist())
