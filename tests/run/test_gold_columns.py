"""Columns of derived tables: readable by Spark, whatever a query computes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from headgate.config import Delta, PipelineConfig, Registry
from headgate.gold.declared import Landed
from headgate.gold.derive import GoldDeriver
from headgate.lake.delta_rs import DeltaRsCommitter
from tests.run.conftest import WRAPPER

OUTPUTS = (
    "min(at) AS at, count(*) AS number",
    "min(at) AS at, struct(count(*) AS number) AS nested",
    "min(at) AS at, array(struct(count(*) AS number)) AS nested",
    "min(at) AS at, map('key', struct(count(*) AS number)) AS nested",
    "collect_list(score) AS nested, min(at) AS at, 'text' AS fixed",
)
QUERIES = {
    **{f"grouped_{n}": f"SELECT player, {text}" for n, text in enumerate(OUTPUTS)},
    "row_by_row": "SELECT player, at, 'text' AS fixed, struct(1 AS number) AS nested",
}


def constrained(column: pa.Field, path: str = "") -> Iterator[str]:
    """Yield the columns, and parts of columns, that may not be null."""
    here = f"{path}.{column.name}"
    if not column.nullable:
        yield here
    kind = column.type
    if pa.types.is_map(kind):
        yield from constrained(kind.item_field, here)
    elif pa.types.is_nested(kind):
        for at in range(kind.num_fields):
            yield from constrained(kind.field(at), here)


@pytest.mark.parametrize("first_score", [9, 0], ids=["rows first", "no rows first"])
def test_columns_of_derived_tables_may_be_null(
    spark: SparkSession, tmp_path: Path, first_score: int
) -> None:
    gold = {
        f"{name}_{{route}}": (
            f"{text} FROM silver WHERE score > 5"
            f"{' GROUP BY player' if name.startswith('grouped') else ''}"
        )
        for name, text in QUERIES.items()
    }
    pipeline = PipelineConfig(
        name="games",
        source=Delta(path=str(tmp_path / "inbox")),
        registry=Registry(folder=str(tmp_path / "schemas")),
        envelope=WRAPPER,
        lake=str(tmp_path),
        silver="silver_{route}",
        gold={**gold, "all": {"from": "grouped_1_*", "select": "route, player, nested"}},
    )
    events: list[object] = []
    committer = DeltaRsCommitter(str(tmp_path))
    deriver = GoldDeriver(spark, committer, pipeline, "headgate:games", events.append)
    for batch, score in enumerate((first_score, 7, 8)):
        landed = {"player": ["ann"], "score": [score], "at": [datetime(2026, 1, 1 + batch)]}
        write_deltalake(tmp_path / "silver_chess", pa.table(landed), mode="append")
        entries = deriver.derive([Landed("silver_chess", "chess", "chess")])
        assert not [entry for entry in entries if entry.error]
        for table in (*(f"{name}_chess" for name in QUERIES), *(["all"] if batch else [])):
            columns = pa.schema(DeltaTable(tmp_path / table).schema())
            assert not [path for column in columns for path in constrained(column)], table
            rows = spark.read.format("delta").load(str(tmp_path / table)).count()
            assert rows == (
                batch + bool(first_score)
                if table == "row_by_row_chess"
                else bool(batch or first_score)
            ), table
            if batch == 2 and table != "all":
                # Columns that seem to have changed their types would have it rebuilt.
                history = DeltaTable(tmp_path / table).history(1)
                assert history[0]["version"] == 2
