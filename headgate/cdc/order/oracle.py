"""Positions in Oracle's redo log: system change number, record (rs_id), and row in it (ssn)."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from headgate.cdc.order.encoding import (
    HEX_WIDTH,
    NUMBER_WIDTH,
    Part,
    Positions,
    TypedPosition,
    extracted,
    hex_number,
    joined,
    number,
    padded,
    padded_hex,
)
from headgate.cdc.order.metadata import told

_LINEAGE = "oracle"
_RS_ID = rf"\s*0x{hex_number('log')}\.{hex_number('block')}\.{hex_number('byte')}\s*"
_NO_RS_ID = ".".join(["-" * HEX_WIDTH] * 3)
_NO_SSN = "-" * NUMBER_WIDTH
_TYPED = re.compile(rf"scn:{number('scn')}")


def oracle_positions(changes: pa.RecordBatch) -> Positions:
    """By scn, rs_id and ssn; without the latter two a change is the first of its scn."""
    scn = told(changes, "_scn", sort_key=1)
    rs_id = told(changes, "_rs_id", sort_key=2)
    ssn = told(changes, "_ssn", sort_key=3)
    record = joined(*map(padded_hex, extracted(rs_id, _RS_ID).values()))
    return Positions(
        pa.repeat(_LINEAGE, len(changes)),
        (
            Part(padded(scn), "the scn is missing or not a number"),
            Part(pc.if_else(rs_id.is_null(), _NO_RS_ID, record), "the rs_id is not like 0x1.2.3"),
            Part(pc.if_else(ssn.is_null(), _NO_SSN, padded(ssn)), "the ssn is not a number"),
        ),
    )


def typed_oracle_position(text: str) -> TypedPosition | None:
    """`scn:123456`."""
    typed = _TYPED.fullmatch(text)
    return TypedPosition(_LINEAGE, typed["scn"].zfill(NUMBER_WIDTH)) if typed else None
