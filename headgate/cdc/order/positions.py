"""Positions in the logs of the supported databases, from metadata or as typed by a user.

Positions are comparable within a lineage. A MySQL lineage is a series of log files
(`log:mysql-bin`) or, with GTIDs, the server or domain that numbers the transactions
(`gtid:3e11fa47-71ca-11e1-9e33-c80aa9429562`, `gtid:0`). Every other database has one lineage.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headgate.cdc.order.encoding import (
    CHANGE,
    HEX_WIDTH,
    HIGHEST,
    NUMBER_WIDTH,
    OrderPart,
    epochs,
    extract_groups,
    hex_pattern,
    join_parts,
    number_pattern,
    pad_hex,
    pad_numbers,
)
from headgate.cdc.order.metadata import column_or_sort_key
from headgate.errors import UsageError


@dataclass(frozen=True)
class Positions:
    """The lineages of some changes, and the parts of their positions in them."""

    lineages: pa.Array
    parts: tuple[OrderPart, ...]


@dataclass(frozen=True)
class ParsedPosition:
    """A position typed by a user: its lineage, and the common prefix of all orders at it."""

    lineage: str
    prefix: str


_LOG_FILE = rf"(?P<series>[ -~]+)\.{number_pattern('file')}"
_SERVER = r"(?P<server>[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})"
_DOMAIN = r"0*(?P<domain>[0-9]{1,10})"
_GTID = rf"(?:{_SERVER}:|{_DOMAIN}-[0-9]{{1,10}}-){number_pattern('transaction')}"

_MYSQL_LOG_POSITION = re.compile(rf"{_LOG_FILE}:{number_pattern('position')}")
_MYSQL_GTID = re.compile(_GTID)

_BAD_LOG_FILE = "the log file is missing or has no number"
_BAD_LOG_POSITION = "the log position is missing or not a number"
_BAD_GTID = "the GTID has neither the form of MySQL nor of MariaDB"


def mysql_positions(changes: pa.RecordBatch) -> Positions:
    """Return positions in the binary log: GTID if there is one, log file, log position."""
    files = column_or_sort_key(changes, "_log_file", sort_key=1).dictionary_encode()
    groups = extract_groups(files.dictionary, _LOG_FILE)
    series = pc.binary_join_element_wise("log:", groups["series"], "").take(files.indices)
    file = OrderPart(pad_numbers(groups["file"]).take(files.indices), _BAD_LOG_FILE)
    log_position = column_or_sort_key(changes, "_log_position", sort_key=2)
    position = OrderPart(pad_numbers(log_position), _BAD_LOG_POSITION)
    gtids = changes.column("_gtid")
    has_gtid = pc.greater(pc.binary_length(gtids), 0).fill_null(False)
    if not pc.any(has_gtid).as_py():
        return Positions(series, (file, position))
    gtid = extract_groups(gtids, _GTID)
    numbering = pc.binary_join_element_wise("gtid:", gtid["server"], gtid["domain"], "")
    by_gtid = join_parts(pad_numbers(gtid["transaction"]), file.texts)
    return Positions(
        pc.if_else(has_gtid, pc.ascii_lower(numbering), series),
        (
            OrderPart(
                pc.if_else(has_gtid, by_gtid, file.texts),
                pc.if_else(file.texts.is_null(), _BAD_LOG_FILE, _BAD_GTID),
            ),
            position,
        ),
    )


def _parse_mysql(text: str) -> ParsedPosition | None:
    """Parse `mysql-bin.000014:4711`, `3e11fa47-71ca-11e1-9e33-c80aa9429562:23` or `0-1-270`."""
    if gtid := _MYSQL_GTID.fullmatch(text):
        numbering = gtid["server"] or gtid["domain"]
        return ParsedPosition(f"gtid:{numbering.lower()}", gtid["transaction"].zfill(NUMBER_WIDTH))
    if log := _MYSQL_LOG_POSITION.fullmatch(text):
        file, position = (log[name].zfill(NUMBER_WIDTH) for name in ("file", "position"))
        return ParsedPosition(f"log:{log['series']}", f"{file}.{position}")
    return None


_ORACLE = "oracle"
_RS_ID = rf"\s*0x{hex_pattern('log')}\.{hex_pattern('block')}\.{hex_pattern('byte')}\s*"
_MISSING_RS_ID = ".".join(["-" * HEX_WIDTH] * 3)
_MISSING_SSN = "-" * NUMBER_WIDTH
_SCN = re.compile(rf"scn:{number_pattern('scn')}")


def oracle_positions(changes: pa.RecordBatch) -> Positions:
    """Return positions in the redo log: scn, record (rs_id), and row in it (ssn).

    A change without the latter two sorts first within its scn.
    """
    scn = column_or_sort_key(changes, "_scn", sort_key=1)
    rs_id = column_or_sort_key(changes, "_rs_id", sort_key=2)
    ssn = column_or_sort_key(changes, "_ssn", sort_key=3)
    record = join_parts(*map(pad_hex, extract_groups(rs_id, _RS_ID).values()))
    record = pc.if_else(rs_id.is_null(), _MISSING_RS_ID, record)
    row = pc.if_else(ssn.is_null(), _MISSING_SSN, pad_numbers(ssn))
    return Positions(
        pa.repeat(_ORACLE, len(changes)),
        (
            OrderPart(pad_numbers(scn), "the scn is missing or not a number"),
            OrderPart(record, "the rs_id does not have the form 0x1.2.3"),
            OrderPart(row, "the ssn is not a number"),
        ),
    )


def _parse_oracle(text: str) -> ParsedPosition | None:
    """Parse `scn:123456`."""
    match = _SCN.fullmatch(text)
    return ParsedPosition(_ORACLE, match["scn"].zfill(NUMBER_WIDTH)) if match else None


_POSTGRESQL = "postgresql"
_POSTGRESQL_LSN = rf"{hex_pattern('high')}/{hex_pattern('low')}"
_POSTGRESQL_POSITION = re.compile(_POSTGRESQL_LSN)


def postgresql_positions(changes: pa.RecordBatch) -> Positions:
    """Return positions in the write-ahead log: the lsn, in two hexadecimal halves."""
    halves = extract_groups(column_or_sort_key(changes, "_lsn", sort_key=1), _POSTGRESQL_LSN)
    lsn = join_parts(*map(pad_hex, halves.values()))
    return Positions(
        pa.repeat(_POSTGRESQL, len(changes)),
        (OrderPart(lsn, "the lsn is missing or does not have the form 16/CB002DB0"),),
    )


def _parse_postgresql(text: str) -> ParsedPosition | None:
    """Parse `16/CB002DB0`."""
    if match := _POSTGRESQL_POSITION.fullmatch(text):
        halves = (half.upper().zfill(HEX_WIDTH) for half in match.groups())
        return ParsedPosition(_POSTGRESQL, ".".join(halves))
    return None


_SQLSERVER = "sqlserver"
_SQLSERVER_WIDTHS = {"file": 8, "block": 8, "slot": 4}
_SQLSERVER_LSN = "(?:0x)?" + ":?".join(
    rf"(?P<{name}>[0-9A-Fa-f]{{{width}}})" for name, width in _SQLSERVER_WIDTHS.items()
)
"""Requires all digits: numbers without leading zeros could just as well be decimal."""
_SQLSERVER_POSITION = re.compile(_SQLSERVER_LSN)


def sqlserver_positions(changes: pa.RecordBatch) -> Positions:
    """Return positions in the transaction log: file, block in it, and slot in the block.

    A stream that reads change tables has the position of the commit, which all changes of the
    transaction share.
    """
    parts = extract_groups(column_or_sort_key(changes, "_lsn", sort_key=1), _SQLSERVER_LSN)
    lsn = pc.ascii_upper(join_parts(*parts.values()))
    return Positions(
        pa.repeat(_SQLSERVER, len(changes)),
        (OrderPart(lsn, "the lsn is missing or does not have the form 00000025:00000728:0003"),),
    )


def _parse_sqlserver(text: str) -> ParsedPosition | None:
    """Parse `00000025:00000728:0003`."""
    if match := _SQLSERVER_POSITION.fullmatch(text):
        return ParsedPosition(_SQLSERVER, ".".join(match.groups()).upper())
    return None


_PARSERS = (_parse_mysql, _parse_oracle, _parse_postgresql, _parse_sqlserver)


def position_order(text: str, lineages: Sequence[str]) -> str:
    """Return the highest order at a position that a user typed.

    It is not below the order of any change up to and at the position.
    """
    position = next(filter(None, (parse(text.strip()) for parse in _PARSERS)), None)
    if position is None:
        raise UsageError(
            "bad-argument",
            f"{_shortened(text)} is not a log position",
            hint="Positions look like mysql-bin.000014:4711, 0-1-270, scn:123456, 16/CB002DB0"
            " or 00000025:00000728:0003.",
        )
    epoch = epochs(lineages).get(position.lineage)
    if epoch is None:
        raise UsageError(
            "bad-argument",
            f"{_shortened(text)} is a position of the lineage {_shortened(position.lineage)},"
            " which has no changes here",
            hint=f"Known lineages: {', '.join(lineages) or 'none'}.",
        )
    return f"{CHANGE}.{epoch}.{position.prefix}.{HIGHEST}"


def _shortened(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:80]}…")
