"""Writes the rows of a table anew, in columns of larger types."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.land.staged_file import StagedFile
from headgate.land.write_parquet import write_parquet
from headgate.schema.conform import conformed


def rewrite_files(
    lake: str, table: str, actions: pa.Table, schema: pa.Schema
) -> Iterator[StagedFile]:
    """All rows of the files that a table has, one row group at a time.

    Files are read as they are, one by one: a column that one of them lacks stays out of its
    successor as well, and every reader takes it for null.
    """
    for path in actions.column("path").to_pylist():
        source = pq.ParquetFile(Path(lake, table, unquote(path)))
        for group in range(source.num_row_groups):
            rows = source.read_row_group(group)
            columns = [
                conformed(rows.column(name), schema.field(name).type) for name in rows.column_names
            ]
            name = f"part-widened-{uuid.uuid4()}.parquet"
            yield write_parquet(lake, table, name, pa.table(columns, names=rows.column_names))
