"""The orders of changes, and the lineages in which their positions count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.cdc.order.encoding import (
    BACKFILL,
    CHANGE,
    Part,
    Positions,
    epoch_part,
    epochs,
    joined,
    kind_part,
    padded,
    uuid_part,
)
from headgate.cdc.order.metadata import (
    SOURCES,
    Reading,
    needed_columns,
    rows_by_reading,
    sort_key_at,
)
from headgate.cdc.order.mysql import mysql_positions
from headgate.cdc.order.oracle import oracle_positions
from headgate.cdc.order.postgresql import postgresql_positions
from headgate.cdc.order.sqlserver import sqlserver_positions

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
        "unknown source: read method ", methods, " and no known position", ""
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


@dataclass(frozen=True)
class Orders:
    """The order of each change; null where it is unknown, and then why, by row."""

    texts: pa.StringArray
    unknown: dict[int, str]


def lineages(metadata: pa.RecordBatch | pa.Table) -> pa.StringArray:
    """The lineage of each change; null for backfills and where the order is unknown anyway."""
    found = [_by_reading(batch, _lineages) for batch in _batches(metadata)]
    return pa.concat_arrays([pa.array([], pa.string()), *found])


def order(metadata: pa.RecordBatch | pa.Table, lineages: Sequence[str]) -> Orders:
    """The orders of the changes of one table, whose lineages took over in the order given."""
    known = epochs(lineages)

    def texts(reading: Reading, changes: pa.RecordBatch) -> pa.Array:
        return joined(*(part.texts for part in parts_of_order(reading, changes, known)))

    def reasons(reading: Reading, changes: pa.RecordBatch) -> pa.Array:
        phase, *parts = parts_of_order(reading, changes, known)
        # Of a change without a whole position no lineage is known: that is not what is wrong.
        parts = [*parts[1:], *parts[:1], phase]
        return pc.coalesce(
            *(pc.if_else(part.texts.is_null(), part.unknown, None) for part in parts)
        )

    found, before = [pa.array([], pa.string())], 0
    unknown: dict[int, str] = {}
    for batch in _batches(metadata):
        found.append(_by_reading(batch, texts))
        if found[-1].null_count:
            rows = np.flatnonzero(found[-1].is_null().to_numpy(zero_copy_only=False))
            why = _by_reading(batch.take(pa.array(rows)), reasons).to_pylist()
            unknown |= zip((rows + before).tolist(), why, strict=True)
        before += len(batch)
    return Orders(pa.concat_arrays(found), unknown)


def _batches(metadata: pa.RecordBatch | pa.Table) -> list[pa.RecordBatch]:
    batches = [metadata] if isinstance(metadata, pa.RecordBatch) else metadata.to_batches()
    return [needed_columns(batch) for batch in batches]


def _by_reading(
    changes: pa.RecordBatch, make: Callable[[Reading, pa.RecordBatch], pa.Array]
) -> pa.Array:
    """A text for each change, made at once for all that were read alike."""
    rows = rows_by_reading(changes)
    if len(rows) == 1:
        [reading] = rows
        return make(reading, changes)
    made = [make(reading, changes.take(pa.array(some))) for reading, some in rows.items()]
    back = np.argsort(np.concatenate([np.empty(0, np.int64), *rows.values()]))
    return pa.concat_arrays([pa.array([], pa.string()), *made]).take(pa.array(back))


def _lineages(reading: Reading, changes: pa.RecordBatch) -> pa.Array:
    if reading not in SOURCES:
        return pa.nulls(len(changes), pa.string())
    positions = positions_in_lineage(reading, changes)
    whole = joined(*(part.texts for part in positions.parts))
    return pc.if_else(whole.is_valid(), positions.lineages, None)
