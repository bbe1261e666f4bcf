"""Positions in SQL Server's transaction log: its file, the block in it, and the place in that.

A stream that reads change tables tells where the transaction was committed, so that all of its
changes have one position.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from headgate.cdc.order.encoding import Part, Positions, TypedPosition, extracted, joined
from headgate.cdc.order.metadata import told

_LINEAGE = "sqlserver"
_PARTS = {"file": 8, "block": 8, "place": 4}
_LSN = "(?:0x)?" + ":?".join(
    rf"(?P<{name}>[0-9A-Fa-f]{{{width}}})" for name, width in _PARTS.items()
)
"""All digits have to be there: numbers without zeros before them may as well be decimal."""
_TYPED = re.compile(_LSN)


def sqlserver_positions(changes: pa.RecordBatch) -> Positions:
    """By log sequence number."""
    parts = extracted(told(changes, "_lsn", sort_key=1), _LSN)
    lsn = pc.ascii_upper(joined(*parts.values()))
    return Positions(
        pa.repeat(_LINEAGE, len(changes)),
        (Part(lsn, "the lsn is missing or is not like 00000025:00000728:0003"),),
    )


def typed_sqlserver_position(text: str) -> TypedPosition | None:
    """`00000025:00000728:0003`."""
    if typed := _TYPED.fullmatch(text):
        return TypedPosition(_LINEAGE, ".".join(typed.groups()).upper())
    return None
