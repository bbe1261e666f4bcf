"""Large logs are folded by Spark, to the same rows as small ones; and verified to the same."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from headgate.cdc.as_of import Cutoff, rows_as_of, rows_as_of_with_spark
from headgate.cdc.change_log import ChangeLog
from headgate.cdc.key import TableKey
from headgate.cdc.rewind import rewind
from headgate.cdc.verify import TableVerified, verify
from tests.cdc.change_lake import ChangeLake
from tests.cdc.changes import case
from tests.cdc.test_as_of import KEY, LOG, oracle_log, timestamp
from tests.cdc.test_merged_is_the_database import land_all
from tests.rounds import some

CASES = [case(seed) for seed in range(40)]
CHANGES = [change for one in CASES for change in one.changes]
MERGED = "theatre_seats"


@pytest.fixture
def lake(tmp_path: Path) -> ChangeLake:
    lake = ChangeLake(tmp_path)
    land_all(lake, CASES)
    return lake


def sorted_rows(rows: pa.Table) -> list[object]:
    return sorted(rows.to_pylist(), key=lambda row: str(row["_order"]))


@pytest.mark.parametrize("key", some([KEY, TableKey()]), ids=["by key", "without a key"])
def test_the_fold_of_spark_is_the_fold_of_one_process(
    spark: SparkSession, lake: ChangeLake, key: TableKey
) -> None:
    log = ChangeLog.open(lake.pipeline.lake, LOG)
    assert log is not None
    times = sorted({change.micros for change in CHANGES})
    positions = sorted({f"{one.log_file}:{one.log_position}" for one in CHANGES if one.log_file})
    lineages = tuple(CASES[0].lineages)
    for cutoff in (
        Cutoff(),
        *(Cutoff(timestamp=timestamp(times[len(times) * part // 4])) for part in (1, 3)),
        *(Cutoff.parse(positions[len(positions) * part // 4], lineages) for part in (0, 2)),
    ):
        found = rows_as_of_with_spark(spark, log, key, cutoff).toArrow()
        assert sorted_rows(found) == sorted_rows(rows_as_of(log, key, cutoff))


@pytest.mark.soak
def test_deletions_by_row_id_find_their_rows(spark: SparkSession, tmp_path: Path) -> None:
    log = oracle_log(
        tmp_path,
        [
            {"at": 1, "id": 1, "row": "AAA"},
            {"at": 2, "id": 2, "row": "AAB"},
            {"at": 3, "id": None, "row": "AAA", "gone": True},
            {"at": 4, "id": 3, "row": "AAA"},
        ],
    )
    for at, ids in ((2, [1, 2]), (3, [2]), (4, [2, 3])):
        for cutoff in (Cutoff(timestamp=timestamp(at * 1_000_000)), Cutoff(order=f"1.{at}~")):
            rows = rows_as_of_with_spark(spark, log, TableKey(("id",)), cutoff).toArrow()
            assert sorted(rows["id"].to_pylist()) == ids


def test_a_rewind_by_spark_makes_the_same_table(spark: SparkSession, lake: ChangeLake) -> None:
    when = timestamp(CHANGES[len(CHANGES) // 2].micros).isoformat()
    small = rewind(lake.pipeline, MERGED, when, "small")
    large = rewind(lake.pipeline, MERGED, when, "large", spark=lambda: spark, spark_above=0)
    assert (small.engine, large.engine) == ("delta-rs", "spark")
    assert small.rows == large.rows
    one, other = (DeltaTable(str(lake.path / name)) for name in ("small", "large"))
    assert sorted_rows(one.to_pyarrow_table()) == sorted_rows(other.to_pyarrow_table())
    assert TableKey.from_schema(pa.schema(other.schema())) == KEY
    assert one.metadata().description == other.metadata().description


def both_ways(spark: SparkSession, lake: ChangeLake) -> tuple[TableVerified, TableVerified]:
    [small] = verify(lake.pipeline)
    [large] = verify(lake.pipeline, spark=lambda: spark, spark_above=0)
    assert (small.engine, large.engine) == ("delta-rs", "spark")
    return small, large


@pytest.mark.soak
def test_verified_by_spark_there_is_no_difference(spark: SparkSession, lake: ChangeLake) -> None:
    small, large = both_ways(spark, lake)
    assert large.is_ok
    assert small.differences == large.differences


@pytest.mark.soak
def test_spark_finds_the_same_differences(spark: SparkSession, lake: ChangeLake) -> None:
    path = str(lake.path / MERGED)
    rows = DeltaTable(path).to_pyarrow_table()
    DeltaTable(path).delete("case_number < 5")
    DeltaTable(path).update(predicate="case_number > 30", updates={"amount": "NULL"})
    write_deltalake(path, rows.sort_by(KEY.columns[0]).slice(len(rows) - 3), mode="append")
    small, large = both_ways(spark, lake)
    assert small.total > 10
    assert small.differences == large.differences
