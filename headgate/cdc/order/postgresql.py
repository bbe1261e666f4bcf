"""Positions in PostgreSQL's write-ahead log: one number, written as two in hexadecimal."""

from __future__ import annotations

import re

import pyarrow as pa

from headgate.cdc.order.encoding import (
    HEX_WIDTH,
    Part,
    Positions,
    TypedPosition,
    extracted,
    hex_number,
    joined,
    padded_hex,
)
from headgate.cdc.order.metadata import told

_LINEAGE = "postgresql"
_LSN = rf"{hex_number('high')}/{hex_number('low')}"
_TYPED = re.compile(_LSN)


def postgresql_positions(changes: pa.RecordBatch) -> Positions:
    """By log sequence number."""
    halves = extracted(told(changes, "_lsn", sort_key=1), _LSN)
    lsn = joined(*map(padded_hex, halves.values()))
    return Positions(
        pa.repeat(_LINEAGE, len(changes)),
        (Part(lsn, "the lsn is missing or is not like 16/CB002DB0"),),
    )


def typed_postgresql_position(text: str) -> TypedPosition | None:
    """`16/CB002DB0`."""
    if typed := _TYPED.fullmatch(text):
        halves = (half.upper().zfill(HEX_WIDTH) for half in typed.groups())
        return TypedPosition(_LINEAGE, ".".join(halves))
    return None
