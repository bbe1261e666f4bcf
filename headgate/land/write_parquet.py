"""One Parquet file in a table's folder, ready to be named by a commit."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import LocalFileSystem

from headgate.land.file_statistics import file_statistics
from headgate.land.staged_file import StagedFile
from headgate.route.safe_name import safe_name

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
