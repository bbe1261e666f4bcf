"""The parts of the orders of changes, in the sequence in which they count."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from headgate.change.order.encoding import BACKFILL, CHANGE, Part, padded
from headgate.change.order.epoch import epoch_part
from headgate.change.order.mysql import mysql_positions
from headgate.change.order.needed_columns import sort_key_at
from headgate.change.order.oracle import oracle_positions
from headgate.change.order.position import Positions
from headgate.change.order.postgresql import postgresql_positions
from headgate.change.order.reading import Reading
from headgate.change.order.sqlserver import sqlserver_positions
from headgate.change.order.tie_break import kind_part, uuid_part

_POSITIONS: dict[Reading, Callable[[pa.RecordBatch], Positions]] = {
    Reading.MYSQL: mysql_positions,
    Reading.ORACLE: oracle_positions,
    Reading.POSTGRESQL: postgresql_positions,
    Reading.SQLSERVER: sqlserver_positions,
}


def parts_of_order(
    reading: Reading, changes: pa.RecordBatch, epochs: dict[str, str]
) -> tuple[Part, ...]:
    """Of changes that were read alike."""
    if reading is Reading.UNKNOWN:
        return (_no_source(changes),)
    if reading is Reading.BACKFILL:
        return _phase(BACKFILL, changes), _time_part(changes), uuid_part(changes)
    positions = positions_in_lineage(reading, changes)
    return _phase(CHANGE, changes), epoch_part(positions.lineages, epochs), *positions.parts


def positions_in_lineage(reading: Reading, changes: pa.RecordBatch) -> Positions:
    """Positions with everything that decides between changes of one lineage."""
    positions = _POSITIONS[reading](changes)
    return Positions(positions.lineages, (*positions.parts, kind_part(changes), uuid_part(changes)))


def _no_source(changes: pa.RecordBatch) -> Part:
    methods = pc.utf8_slice_codeunits(changes.column("_read_method").fill_null("none"), 0, 80)
    why = pc.binary_join_element_wise(
        "neither the read method (", methods, ") nor a position tells of a source known here", ""
    )
    return Part(pa.nulls(len(changes), pa.string()), why)


def _phase(phase: str, changes: pa.RecordBatch) -> Part:
    return Part(pa.repeat(phase, len(changes)), "")


def _time_part(changes: pa.RecordBatch) -> Part:
    """The source time in microseconds; where it is not told, the milliseconds of the sort keys."""
    micros = changes.column("_source_timestamp").cast(pa.int64()).cast(pa.string())
    millis = pc.binary_join_element_wise(sort_key_at(changes, 0), "000", "")
    return Part(
        padded(pc.coalesce(micros, millis)), "the source time is missing or before the year 1970"
    )
