"""Staged files, as tasks write them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from headgate.lake.parquet import file_statistics
from headgate.lake.staged import StagedFile


def staged(
    lake: Path,
    table: str,
    rows: pa.Table | Mapping[str, Any],
    *,
    partition: Mapping[str, str] | None = None,
    schema_ids: tuple[int, ...] = (1,),
) -> StagedFile:
    """Write rows to a staged file."""
    content = rows if isinstance(rows, pa.Table) else pa.table(rows)
    folder = "".join(f"{column}=x/" for column in partition or ())
    path = f"{folder}part-{uuid4()}.parquet"
    file = lake / table / path
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(content, file, store_schema=False)
    return StagedFile(
        table=table,
        path=path,
        size=file.stat().st_size,
        rows=content.num_rows,
        statistics=file_statistics(content),
        schema_bytes=content.schema.serialize().to_pybytes(),
        route=table,
        schema_ids=schema_ids,
        partition=partition,
    )


def rows_in(lake: Path, table: str, by: str) -> list[dict[str, Any]]:
    """Return the rows of a table, sorted by a column."""
    return list(DeltaTable(lake / table).to_pyarrow_table().sort_by(by).to_pylist())


def files_in(lake: Path, table: str) -> list[str]:
    """Return the data files in a table's folder, committed or not."""
    folder = lake / table
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.parquet"))
