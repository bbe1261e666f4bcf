"""What a table is beyond the columns of its files."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class TableShape:
    """What is settled before the first file comes."""

    first_columns: pa.Schema
    """Columns that it has from the start, whether a file has them or not."""
    partition_by: tuple[str, ...] = ()
