"""Positions in the binary log of MySQL and MariaDB.

A lineage is a series of log files (`log:mysql-bin`) or, where transactions have GTIDs, the
server or the domain that numbers them (`gtid:3e11fa47-71ca-11e1-9e33-c80aa9429562`, `gtid:0`).
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from headgate.cdc.order.encoding import (
    NUMBER_WIDTH,
    Part,
    Positions,
    TypedPosition,
    extracted,
    joined,
    number,
    padded,
)
from headgate.cdc.order.metadata import told

_LOG_FILE = rf"(?P<series>[ -~]+)\.{number('file')}"
_SERVER = r"(?P<server>[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})"
_DOMAIN = r"0*(?P<domain>[0-9]{1,10})"
_GTID = rf"(?:{_SERVER}:|{_DOMAIN}-[0-9]{{1,10}}-){number('transaction')}"

_TYPED_LOG = re.compile(rf"{_LOG_FILE}:{number('position')}")
_TYPED_GTID = re.compile(_GTID)

_NO_FILE = "the log file is missing or has no number"
_NO_POSITION = "the log position is missing or not a number"
_NO_GTID = "the GTID is not one of MySQL or MariaDB"


def mysql_positions(changes: pa.RecordBatch) -> Positions:
    """By GTID where there is one, then by number of the log file and place in it."""
    files = told(changes, "_log_file", sort_key=1).dictionary_encode()
    found = extracted(files.dictionary, _LOG_FILE)
    series = pc.binary_join_element_wise("log:", found["series"], "").take(files.indices)
    file = Part(padded(found["file"]).take(files.indices), _NO_FILE)
    position = Part(padded(told(changes, "_log_position", sort_key=2)), _NO_POSITION)
    gtids = changes.column("_gtid")
    given = pc.greater(pc.binary_length(gtids), 0).fill_null(False)
    if not pc.any(given).as_py():
        return Positions(series, (file, position))
    gtid = extracted(gtids, _GTID)
    numbering = pc.binary_join_element_wise("gtid:", gtid["server"], gtid["domain"], "")
    by_gtid = joined(padded(gtid["transaction"]), file.texts)
    return Positions(
        pc.if_else(given, pc.ascii_lower(numbering), series),
        (
            Part(
                pc.if_else(given, by_gtid, file.texts),
                pc.if_else(file.texts.is_null(), _NO_FILE, _NO_GTID),
            ),
            position,
        ),
    )


def typed_mysql_position(text: str) -> TypedPosition | None:
    """`mysql-bin.000014:4711`, `3e11fa47-71ca-11e1-9e33-c80aa9429562:23` or `0-1-270`."""
    if gtid := _TYPED_GTID.fullmatch(text):
        numbering = gtid["server"] or gtid["domain"]
        return TypedPosition(f"gtid:{numbering.lower()}", gtid["transaction"].zfill(NUMBER_WIDTH))
    if log := _TYPED_LOG.fullmatch(text):
        file, position = (log[name].zfill(NUMBER_WIDTH) for name in ("file", "position"))
        return TypedPosition(f"log:{log['series']}", f"{file}.{position}")
    return None
