"""A source table as it was at some moment, or as it is: the fold of its whole log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headgate.change.change_log import ChangeLog
from headgate.change.fold import by_row_id_alone, has_key, keyed_changes, latest, live
from headgate.change.merge_table import GONE
from headgate.change.merged_columns import ORDER
from headgate.change.table_key import ROW_ID, TableKey, newest_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Until:
    """The last changes that count: by the source's clock, or by the source's order."""

    moment: datetime | None = None
    order: str | None = None

    def of(self, changes: pa.Table) -> pa.Table:
        if self.moment is not None:
            return changes.filter(pc.less_equal(changes["_source_timestamp"], self.moment))
        if self.order is not None:
            return changes.filter(pc.less_equal(changes[ORDER], self.order))
        return changes


def key_of_log(log: ChangeLog, declared: tuple[str, ...] | None, until: Until) -> TableKey:
    """The key that the source table had then."""
    facts = [
        name
        for name in log.schema.names
        if name in ("_primary_keys", ROW_ID, ORDER, "_source_timestamp")
    ]
    told = until.of(log.changes(facts))
    columns = pa.table(
        [
            told[field.name] if field.name in facts else pa.nulls(len(told), field.type)
            for field in log.schema
        ],
        schema=log.schema,
    )
    return newest_key(columns, declared) or TableKey()


def rows_as_of(log: ChangeLog, key: TableKey, until: Until) -> pa.Table:
    """The rows of that moment, in the columns of the log."""
    changes = until.of(log.changes())
    if not key:
        return changes
    return live(latest(keyed_changes(changes, key, lambda _: changes), key))


def rows_as_of_with_spark(
    spark: SparkSession, log: ChangeLog, key: TableKey, until: Until
) -> DataFrame:
    """The same for a log that is too large for the memory of one process.

    All changes of a key meet in one task, and each task folds its keys as a merge does.
    """
    from pyspark.sql import functions as F

    frame = spark.read.format("delta").option("versionAsOf", log.version).load(str(log.path))
    if until.moment is not None:
        frame = frame.filter(F.col("_source_timestamp") <= F.lit(until.moment))
    if until.order is not None:
        frame = frame.filter(F.col(ORDER) <= F.lit(until.order))
    if not key:
        return frame
    by_row = _deletions_by_row(log, key, until)
    keyed = frame.repartition(*(F.col(f"`{name}`") for name in key.columns))
    return keyed.mapInArrow(partial(_fold, key, by_row), frame.schema)


def _deletions_by_row(log: ChangeLog, key: TableKey, until: Until) -> pa.Table | None:
    """Deletions by row id alone, which are few, with their keys."""
    if key.by_row_id or ROW_ID not in log.schema.names:
        return None
    columns = [*key.columns, ROW_ID, ORDER, GONE, "_source_timestamp"]
    alone = []
    for portion in log.portions(columns):
        rows = until.of(pa.Table.from_batches([portion]))
        alone.append(rows.filter(pa.array(by_row_id_alone(rows, key))))
    deletions = pa.concat_tables(alone) if alone else None
    if not deletions:
        return None
    return keyed_changes(deletions, key, log.rows_by_id(key))


def _fold(
    key: TableKey, by_row: pa.Table | None, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    received = list(batches)
    if not received:
        return
    changes = pa.Table.from_batches(received)
    changes = changes.filter(pa.array(has_key(changes, key)))
    if by_row is not None:
        mine = by_row.join(
            changes.select(list(key.columns)).group_by(list(key.columns)).aggregate([]),
            list(key.columns),
            join_type="left semi",
        )
        changes = pa.concat_tables([changes, mine], promote_options="permissive")
    yield from live(latest(changes, key)).select(received[0].schema.names).to_batches()
