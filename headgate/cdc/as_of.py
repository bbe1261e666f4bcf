"""A source table as of a timestamp, as of a position, or now: the fold of its whole log.

A row that a backfill read has no position, only a timestamp. As of a timestamp, it counts from that
time on. As of a position, it counts unless the backfill read it after the position, which is so if
a change of its key after the position is not later than the read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.cdc.change_log import ChangeLog
from headgate.cdc.fold import has_key, keyed_changes, latest, live, with_comparable_keys
from headgate.cdc.key import ORDER, ROW_ID, TableKey, newest_key
from headgate.cdc.merge_table import MAX_FOLD_BYTES
from headgate.cdc.order.encoding import BACKFILL
from headgate.cdc.order.positions import position_order
from headgate.config.units import parse_timestamp
from headgate.errors import UsageError
from headgate.lake.spark import decoded_metadata

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Fold = Callable[[pa.Table], pa.Table]

TIME = "_source_timestamp"
# Working columns, beside those of the key, whose names have only letters, digits and `_`.
_INDEX = "#index"
_FIRST = "#first"
_BYTES_PER_TASK = MAX_FOLD_BYTES // 4
"""Bytes of change files per task; several tasks of one machine fold at the same time."""


@dataclass(frozen=True)
class Cutoff:
    """The last changes that count, by source timestamp or by order; without either, all count."""

    timestamp: datetime | None = None
    order: str | None = None

    @classmethod
    def parse(cls, text: str, lineages: tuple[str, ...]) -> Cutoff:
        """Parse a timestamp, in UTC unless it has an offset, or a position in the source's log."""
        timestamp = parse_timestamp(text.strip())
        if timestamp is not None:
            return cls(timestamp=timestamp)
        try:
            return cls(order=position_order(text, lineages))
        except UsageError as error:
            hint = f"{error.hint} Times look like 2026-11-01 12:00."
            raise UsageError(error.code, error.message, hint) from None

    def apply(self, changes: pa.Table) -> pa.Table:
        """Return the changes that count."""
        if self.timestamp is not None:
            return changes.filter(pc.less_equal(changes[TIME], self.timestamp))
        if self.order is not None:
            return changes.filter(pc.less_equal(changes[ORDER], self.order))
        return changes


def key_of_log(log: ChangeLog, declared: tuple[str, ...] | None, cutoff: Cutoff) -> TableKey:
    """Return the key that the source table had at the cutoff, or its current key if unknown."""
    wanted = ("_primary_keys", ROW_ID, ORDER, TIME)
    names = [name for name in log.schema.names if name in wanted]
    found = [
        _changes_with_keys(cutoff.apply(pa.Table.from_batches([portion])))
        for portion in log.portions(names)
    ]
    newest = pa.concat_tables(found) if found else None
    if not newest:
        return TableKey() if cutoff == Cutoff() else key_of_log(log, declared, Cutoff())
    columns = pa.table(
        [
            newest[field.name] if field.name in names else pa.nulls(len(newest), field.type)
            for field in log.schema
        ],
        schema=log.schema,
    )
    return newest_key(columns, declared) or TableKey()


def _changes_with_keys(changes: pa.Table) -> pa.Table:
    """Return the few changes that decide the key: the newest with a key, one with a row ID, any."""
    few = [changes.slice(0, 1)]
    named = changes.filter(pc.greater(pc.list_value_length(changes["_primary_keys"]), 0))
    if len(named):
        newest = pc.index(named[ORDER], pc.max(named[ORDER])).as_py()
        few.append(named.slice(newest, 1))
    if ROW_ID in changes.column_names:
        few.append(changes.filter(changes[ROW_ID].is_valid()).slice(0, 1))
    return pa.concat_tables(few)


def rows_as_of(log: ChangeLog, key: TableKey, cutoff: Cutoff) -> pa.Table:
    """Return the rows as of the cutoff, in the columns of the log."""
    changes = log.rows()
    if not key:
        return cutoff.apply(changes)
    return _rows_at(keyed_changes(changes, key, lambda _: changes), key, cutoff)


def rows_as_of_with_spark(
    spark: SparkSession, log: ChangeLog, key: TableKey, cutoff: Cutoff
) -> DataFrame:
    """Return the same rows for a log that is too large for the memory of one process.

    All changes of a key meet in one task, and each task folds its keys as a merge does.
    """
    from pyspark.sql import functions as F

    frame = spark.read.format("delta").option("versionAsOf", log.version).load(log.url)
    if cutoff.timestamp is not None:
        frame = frame.filter(F.col(TIME) <= F.lit(cutoff.timestamp))
    if not key:
        return frame if cutoff.order is None else frame.filter(F.col(ORDER) <= F.lit(cutoff.order))
    fold = partial(_rows_at, key=key, cutoff=cutoff)
    return fold_with_spark(frame, log, key, fold)


def fold_with_spark(
    frame: DataFrame, log: ChangeLog, key: TableKey, fold: Fold, schema: Any = None
) -> DataFrame:
    """Fold all changes of each key; those of one key meet in one task."""
    from pyspark.sql import functions as F

    by_row = _keyed_row_deletions(log, key)
    tasks = log.bytes // _BYTES_PER_TASK + 1
    keyed = frame.repartition(tasks, *(F.col(f"`{name}`") for name in key.columns))
    return keyed.mapInArrow(partial(_fold, key, by_row, fold), schema or frame.schema)


def in_columns(rows: DataFrame, columns: pa.Schema) -> DataFrame:
    """Select columns from rows of a log, with their field metadata."""
    from pyspark.sql import functions as F

    return rows.select(
        *(
            F.col(f"`{field.name}`").alias(field.name, metadata=decoded_metadata(field.metadata))
            for field in columns
        )
    )


def _rows_at(keyed: pa.Table, key: TableKey, cutoff: Cutoff) -> pa.Table:
    if cutoff.order is not None:
        keyed = _without_later_backfills(keyed, key, cutoff.order)
    return live(latest(cutoff.apply(keyed), key))


def _without_later_backfills(keyed: pa.Table, key: TableKey, order: str) -> pa.Table:
    """Drop rows that a backfill read after a change beyond the order."""
    names = list(key.columns)
    is_read = pc.starts_with(keyed[ORDER], f"{BACKFILL}.").to_numpy()
    read = np.flatnonzero(is_read)
    after = keyed.select([*names, ORDER, TIME]).filter(pc.greater(keyed[ORDER], order))
    if not len(read) or not len(after):
        return keyed
    backfilled = keyed.select([*names, TIME]).take(pa.array(read))
    backfilled = backfilled.append_column(_INDEX, pa.array(read))
    changed = after.group_by(names).aggregate([(TIME, "min")]).rename_columns([*names, _FIRST])
    both = backfilled.join(changed, names, join_type="inner")
    outdated = both.filter(pc.less_equal(both[_FIRST], both[TIME]))
    counts = np.ones(len(keyed), bool)
    counts[outdated[_INDEX].to_numpy()] = False
    return keyed.filter(pa.array(counts))


def _keyed_row_deletions(log: ChangeLog, key: TableKey) -> pa.Table | None:
    """Return the deletions that name only a row ID, with the keys of their rows."""
    deletions = pa.concat_tables(log.by_row_id_alone(key))
    return keyed_changes(deletions, key, log.rows_by_id(key)) if len(deletions) else None


def _fold(
    key: TableKey, by_row: pa.Table | None, fold: Fold, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    received = list(batches)
    if not received:
        return
    changes = with_comparable_keys(pa.Table.from_batches(received), key)
    changes = changes.filter(pa.array(has_key(changes, key)))
    if by_row is not None:
        matching = by_row.join(
            changes.select(list(key.columns)).group_by(list(key.columns)).aggregate([]),
            list(key.columns),
            join_type="left semi",
        )
        changes = pa.concat_tables([changes, matching], promote_options="permissive")
    yield from fold(changes).to_batches()
