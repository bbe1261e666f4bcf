"""Rewrites a staged file whose columns do not fit their table as they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.land.staged_file import StagedFile
from headgate.land.write_parquet import write_parquet
from headgate.schema.conform import conformed
from headgate.schema.fit import Fit


def refit_file(lake: str, file: StagedFile, fitted: Fit) -> StagedFile:
    """The same rows under the table's names and types, in a file of its own."""
    rows = pq.ParquetFile(Path(lake, file.table, file.path)).read()
    columns = [
        conformed(rows.column(one.source), one.type) if one.type else rows.column(one.source)
        for one in fitted.placed
    ]
    refitted = pa.table(columns, names=[one.target for one in fitted.placed])
    name = file.path.removesuffix(".parquet") + "-fitted.parquet"
    written = write_parquet(lake, file.table, name, refitted)
    return replace(
        file,
        path=written.path,
        size=written.size,
        statistics=written.statistics,
        schema_bytes=written.schema_bytes,
    )
