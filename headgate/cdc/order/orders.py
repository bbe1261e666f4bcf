"""The orders and lineages of changes, a batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.cdc.order.encoding import (
    BACKFILL,
    CHANGE,
    OrderPart,
    change_type_part,
    epoch_part,
    epochs,
    join_parts,
    pad_numbers,
    uuid_part,
)
from headgate.cdc.order.metadata import (
    DATABASES,
    Layout,
    order_columns,
    rows_by_layout,
    sort_key_at,
)
from headgate.cdc.order.positions import (
    Positions,
    mysql_positions,
    oracle_positions,
    postgresql_positions,
    sqlserver_positions,
)

_POSITIONS: dict[Layout, Callable[[pa.RecordBatch], Positions]] = {
    Layout.MYSQL: mysql_positions,
    Layout.ORACLE: oracle_positions,
    Layout.POSTGRESQL: postgresql_positions,
    Layout.SQLSERVER: sqlserver_positions,
}


@dataclass(frozen=True)
class Orders:
    """The orders of changes; null if unknown, with the reason by row."""

    texts: pa.StringArray
    unknown: dict[int, str]


def lineages(metadata: pa.RecordBatch | pa.Table) -> pa.StringArray:
    """Return the lineages of changes; null for backfills and if the order is unknown."""
    texts = [_by_layout(batch, _lineages) for batch in _batches(metadata)]
    return pa.concat_arrays([pa.array([], pa.string()), *texts])


def order(metadata: pa.RecordBatch | pa.Table, lineages: Sequence[str]) -> Orders:
    """Return the orders of one table's changes, given its lineages from oldest to newest."""
    epoch_of = epochs(lineages)

    def orders(layout: Layout, changes: pa.RecordBatch) -> pa.Array:
        return join_parts(*(part.texts for part in _parts(layout, changes, epoch_of)))

    def reasons(layout: Layout, changes: pa.RecordBatch) -> pa.Array:
        phase, *parts = _parts(layout, changes, epoch_of)
        # The epoch last: without a complete position the lineage is unknown, but not the reason.
        parts = [*parts[1:], *parts[:1], phase]
        return pc.coalesce(*(pc.if_else(part.texts.is_null(), part.reason, None) for part in parts))

    texts, first_row = [pa.array([], pa.string())], 0
    unknown: dict[int, str] = {}
    for batch in _batches(metadata):
        texts.append(_by_layout(batch, orders))
        if texts[-1].null_count:
            rows = np.flatnonzero(texts[-1].is_null().to_numpy(zero_copy_only=False))
            why = _by_layout(batch.take(pa.array(rows)), reasons).to_pylist()
            unknown |= zip((rows + first_row).tolist(), why, strict=True)
        first_row += len(batch)
    return Orders(pa.concat_arrays(texts), unknown)


def _batches(metadata: pa.RecordBatch | pa.Table) -> list[pa.RecordBatch]:
    batches = [metadata] if isinstance(metadata, pa.RecordBatch) else metadata.to_batches()
    return [order_columns(batch) for batch in batches]


def _by_layout(
    changes: pa.RecordBatch, compute: Callable[[Layout, pa.RecordBatch], pa.Array]
) -> pa.Array:
    """Compute a text for each change, for all changes of a layout at once."""
    rows = rows_by_layout(changes)
    if len(rows) == 1:
        [layout] = rows
        return compute(layout, changes)
    parts = [compute(layout, changes.take(pa.array(some))) for layout, some in rows.items()]
    original = np.argsort(np.concatenate([np.empty(0, np.int64), *rows.values()]))
    return pa.concat_arrays([pa.array([], pa.string()), *parts]).take(pa.array(original))


def _lineages(layout: Layout, changes: pa.RecordBatch) -> pa.Array:
    if layout not in DATABASES:
        return pa.nulls(len(changes), pa.string())
    positions = _complete_positions(layout, changes)
    is_complete = join_parts(*(part.texts for part in positions.parts)).is_valid()
    return pc.if_else(is_complete, positions.lineages, None)


def _parts(
    layout: Layout, changes: pa.RecordBatch, epoch_of: dict[str, str]
) -> tuple[OrderPart, ...]:
    """Return all parts of the orders of changes with one layout."""
    if layout is Layout.UNKNOWN:
        return (_unknown_source(changes),)
    if layout is Layout.BACKFILL:
        return _phase(BACKFILL, changes), _source_time(changes), uuid_part(changes)
    positions = _complete_positions(layout, changes)
    return _phase(CHANGE, changes), epoch_part(positions.lineages, epoch_of), *positions.parts


def _complete_positions(layout: Layout, changes: pa.RecordBatch) -> Positions:
    """Return positions with the parts that decide between changes at the same position."""
    positions = _POSITIONS[layout](changes)
    tie_breaks = (change_type_part(changes), uuid_part(changes))
    return Positions(positions.lineages, (*positions.parts, *tie_breaks))


def _phase(phase: str, changes: pa.RecordBatch) -> OrderPart:
    return OrderPart(pa.repeat(phase, len(changes)), "")


def _source_time(changes: pa.RecordBatch) -> OrderPart:
    """Return the source time in microseconds, or else from the milliseconds in the sort keys."""
    micros = changes.column("_source_timestamp").cast(pa.int64()).cast(pa.string())
    millis = pc.binary_join_element_wise(sort_key_at(changes, 0), "000", "")
    return OrderPart(
        pad_numbers(pc.coalesce(micros, millis)), "the source time is missing or before 1970"
    )


def _unknown_source(changes: pa.RecordBatch) -> OrderPart:
    methods = pc.utf8_slice_codeunits(changes.column("_read_method").fill_null("none"), 0, 80)
    reason = pc.binary_join_element_wise(
        "neither the read method (", methods, ") nor a position identifies a supported database", ""
    )
    return OrderPart(pa.nulls(len(changes), pa.string()), reason)
