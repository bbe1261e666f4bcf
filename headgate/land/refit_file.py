"""Rewrites a staged file whose columns do not fit their table as they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.land.file_statistics import file_statistics
from headgate.land.staged_file import StagedFile
from headgate.schema.fit import Fit


def refit_file(lake: str, file: StagedFile, fitted: Fit) -> StagedFile:
    """The same rows under the table's names and types, in a file of its own."""
    old = Path(lake, file.table, file.path)
    rows = pq.ParquetFile(old).read()
    columns = [
        rows.column(one.source).cast(one.type) if one.type else rows.column(one.source)
        for one in fitted.placed
    ]
    refitted = pa.table(columns, names=[one.target for one in fitted.placed])
    path = file.path.removesuffix(".parquet") + "-fitted.parquet"
    new = Path(lake, file.table, path)
    pq.write_table(refitted, new, compression="zstd", store_schema=False)
    return replace(
        file,
        path=path,
        size=new.stat().st_size,
        statistics=file_statistics(refitted),
        schema_bytes=refitted.schema.remove_metadata().serialize().to_pybytes(),
    )
