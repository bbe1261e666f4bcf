"""A Delta table that may not be there yet."""

from __future__ import annotations

from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError


def open_table(path: str | Path, version: int | None = None) -> DeltaTable | None:
    """As it is, or as it was at a version; None where there is none."""
    try:
        return DeltaTable(str(path), version=version)
    except TableNotFoundError:
        return None
