"""Whether a large merged table is what its log says: Spark finds the rows that are not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable

from headgate.change.as_of import Until, rows_as_of_with_spark
from headgate.change.change_log import ChangeLog
from headgate.change.compare_rows import MOST_EXAMPLES, RowDifferences, compare_rows
from headgate.change.verify_table import columns_of_merged, comparable, key_of, telling_apart

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


_KINDS = ("missing rows", "rows too many", "different rows")


def verify_with_spark(
    spark: SparkSession, log: ChangeLog, table: DeltaTable, path: Path
) -> RowDifferences:
    """The same as `verify_merged`; only rows for examples come into this process."""
    from pyspark.sql import functions as F

    key = key_of(table)
    names = comparable(table, columns_of_merged(log, table))
    columns = pa.schema([pa.schema(table.schema()).field(name) for name in names])
    found = spark.read.format("delta").option("versionAsOf", table.version()).load(str(path))
    types = {field.name: field.dataType for field in found.schema}
    wanted = rows_as_of_with_spark(spark, log, key, Until()).select(
        *(F.col(f"`{name}`").cast(types[name]).alias(name) for name in names)
    )
    wanted, found = _comparable(wanted, columns), _comparable(found, columns)
    by = list(telling_apart(key))
    missing = wanted.exceptAll(found).persist()
    too_many = found.exceptAll(wanted).persist()
    try:
        counts = _counts(missing, too_many, by).persist()
        totals = counts.agg(*(F.sum(f"`{kind}`") for kind in _KINDS)).head()
        examples = _examples(counts, missing, too_many, by)
        counts.unpersist()
    finally:
        missing.unpersist()
        too_many.unpersist()
    assert totals is not None
    amounts = [int(amount or 0) for amount in totals]
    return replace(
        examples,
        rows=table.count(),
        missing=amounts[0],
        too_many=amounts[1],
        different=amounts[2],
    )


def _comparable(rows: DataFrame, columns: pa.Schema) -> DataFrame:
    """Lists, structs and maps as JSON: Spark does not compare maps."""
    from pyspark.sql import functions as F

    def column(field: pa.Field) -> Column:
        value = F.col(f"`{field.name}`")
        if pa.types.is_nested(field.type):
            value = F.to_json(value, {"ignoreNullFields": "false"})
        return value.alias(field.name)

    return rows.select(*map(column, columns))


def _counts(missing: DataFrame, too_many: DataFrame, by: list[str]) -> DataFrame:
    """By key, how many rows are wrong in which way: those on both sides are different ones."""
    from pyspark.sql import functions as F

    keys = [F.col(f"`{name}`") for name in by]
    one, none = F.lit(1), F.lit(0)
    sides = missing.select(*keys, one.alias("is wanted"), none.alias("is found")).unionAll(
        too_many.select(*keys, none.alias("is wanted"), one.alias("is found"))
    )
    grouped = sides.groupBy(*keys).agg(
        F.sum("`is wanted`").alias("all wanted"), F.sum("`is found`").alias("all found")
    )
    wanted, found = F.col("`all wanted`"), F.col("`all found`")
    both = F.least(wanted, found)
    first, second, third = _KINDS
    return grouped.select(
        *keys, (wanted - both).alias(first), (found - both).alias(second), both.alias(third)
    )


def _examples(
    counts: DataFrame, missing: DataFrame, too_many: DataFrame, by: list[str]
) -> RowDifferences:
    from pyspark.sql import functions as F

    keys = [F.col(f"`{name}`") for name in by]
    few = [
        counts.filter(F.col(f"`{kind}`") > 0).orderBy(*keys).limit(MOST_EXAMPLES) for kind in _KINDS
    ]
    chosen = few[0].unionAll(few[1]).unionAll(few[2])
    # Under other names, so that a join can tell them from those of the rows.
    renamed = chosen.select(*(key.alias(f"key {at}") for at, key in enumerate(keys))).distinct()
    same = [key.eqNullSafe(F.col(f"`key {at}`")) for at, key in enumerate(keys)]
    wanted, found = (
        rows.join(F.broadcast(renamed), same, "left_semi").toArrow() for rows in (missing, too_many)
    )
    return compare_rows(wanted, found, by)
