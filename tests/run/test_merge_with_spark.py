"""What is too large for one task comes out of Spark as it would out of a task."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from headgate.cdc.history import merge_history
from headgate.cdc.merge import merge_tables, merge_with_delta_rs
from headgate.cdc.merge_table import NeedsSparkMerge, TableMerged, merge_table
from headgate.cdc.merge_with_spark import merge_with_spark
from headgate.cdc.unmerged import MergePlan
from headgate.lake.choose_committer import choose_committer
from headgate.lake.delta_rs import DeltaRsCommitter
from tests.cdc.test_history_and_row_ids import LOG, Table, plain
from tests.rounds import some


def rows(lake: Path, table: str) -> list[dict[str, Any]]:
    return list(DeltaTable(lake / table).to_pyarrow_table().to_pylist())


def plan_of(lake: Path, metadata: bool) -> MergePlan:
    return MergePlan(str(lake), "log", "merged", "history", "_tombstones", "app", metadata)


@pytest.mark.parametrize(
    ("row_ids", "metadata"), some([(True, True), (False, False)], (True, True))
)
def test_all_of_a_log_at_once(
    spark: SparkSession, tmp_path: Path, row_ids: bool, metadata: bool
) -> None:
    table = Table(Random(4), row_ids)
    table.run(60)
    here, there = tmp_path / "here", tmp_path / "there"
    late, early = table.log[20:30], [*table.log[:20], *table.log[30:]]
    write_deltalake(here / "log", pa.Table.from_pylist(early, LOG))
    shutil.copytree(here, there)
    in_process, by_spark = plan_of(here, metadata), plan_of(there, metadata)
    ours, sparks = DeltaRsCommitter(str(here)), DeltaRsCommitter(str(there))
    merge_table(in_process, ours)
    merge_history(in_process, ours)
    unmerged = by_spark.unmerged(None)
    assert unmerged is not None
    for name in ("merged", "history"):
        is_history = name == "history"
        request = NeedsSparkMerge.of(by_spark, name, unmerged, is_history=is_history)
        merge_with_spark(spark, request, sparks)
    for name in ("merged", "history"):
        found, wanted = (sorted(map(repr, rows(lake, name))) for lake in (there, here))
        assert found == wanted
    for again in (merge_table(by_spark, sparks), merge_history(by_spark, sparks)):
        assert isinstance(again, TableMerged)
        assert again.was_up_to_date

    # What is gone is remembered, whoever merged: late changes raise nothing.
    for lake, plan, committer in ((here, in_process, ours), (there, by_spark, sparks)):
        write_deltalake(lake / "log", pa.Table.from_pylist(late, LOG), mode="append")
        merge_table(plan, committer)
        merge_history(replace(plan), committer)
        assert plain(rows(lake, "merged")) == table.states[-1]
        current = [one for one in rows(lake, "history") if one["_is_current"]]
        assert plain(current) == table.states[-1]


def test_tables_with_constraints_are_merged_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    table = Table(Random(4), row_ids=True)
    table.run(60)
    lake, plan = str(tmp_path), plan_of(tmp_path, metadata=True)
    write_deltalake(tmp_path / "log", pa.Table.from_pylist(table.log[:40], LOG))
    assert all(isinstance(one, TableMerged) for one in merge_with_delta_rs([plan]))
    for name in ("merged", "history"):
        path = f"delta.`{tmp_path}/{name}`"
        spark.sql(f"ALTER TABLE {path} ADD CONSTRAINT ordered CHECK (_order IS NOT NULL)")
    write_deltalake(tmp_path / "log", pa.Table.from_pylist(table.log[40:], LOG), mode="append")
    assert list(merge_with_delta_rs([plan])) == [plan]
    committer = choose_committer("auto", lambda: spark, lake)
    results = list(merge_tables([plan], committer))
    assert [one.engine for one in results if isinstance(one, TableMerged)] == ["spark", "spark"]
    assert plain(rows(tmp_path, "merged")) == table.states[-1]
    current = [one for one in rows(tmp_path, "history") if one["_is_current"]]
    assert plain(current) == table.states[-1]
