"""Maintenance of tables that Spark has changed: deletion vectors, OPTIMIZE, RESTORE, REORG."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.lake.log_files import TableLog
from headgate.lake.maintain import MaintenancePolicy, apply_plan, plan_maintenance
from headgate.lake.snapshot import Snapshot
from headgate.lake.writers import StagedFiles

POLICY = MaintenancePolicy(keep=timedelta(days=365), max_versions=4)


def test_every_version_that_is_kept_reads_as_before(spark: SparkSession, tmp_path: Path) -> None:
    url = str(tmp_path / "t")
    table = f"delta.`{url}`"
    properties = {
        "delta.enableDeletionVectors": "true",
        "delta.enableChangeDataFeed": "true",
        "delta.checkpointInterval": "3",
    }
    spark.range(0, 100, 1, 1).write.format("delta").options(**properties).save(url)
    changes = (
        f"DELETE FROM {table} WHERE id = 7",
        f"INSERT INTO {table} SELECT id + 100 FROM range(0, 20, 1, 1)",
        f"UPDATE {table} SET id = id + 1000 WHERE id % 50 = 3",
        f"DELETE FROM {table} WHERE id = 8",
        f"OPTIMIZE {table}",
        f"DELETE FROM {table} WHERE id % 40 = 9",
        f"RESTORE TABLE {table} TO VERSION AS OF 4",
        f"DELETE FROM {table} WHERE id = 11",
        f"INSERT INTO {table} SELECT id + 300 FROM range(0, 5, 1, 1)",
        f"DELETE FROM {table} WHERE id = 12",
        f"REORG TABLE {table} APPLY (PURGE)",
        f"INSERT INTO {table} SELECT id + 400 FROM range(0, 5, 1, 1)",
    )

    def rows(version: int) -> list[int]:
        read = spark.read.format("delta").option("versionAsOf", version).load(url)
        return sorted(row.id for row in read.collect())

    newest = oldest = 0
    for change in changes:
        spark.sql(change)
        for path in (tmp_path / "t").rglob("*"):
            if path.is_file() and "_delta_log" not in path.parts:
                os.utime(path, (0, 0))
        found = Snapshot.open(str(tmp_path), "t")
        assert found is not None
        newest = found.version
        first = TableLog.of(found).first
        before = {version: rows(version) for version in range(first, newest + 1)}
        plan = plan_maintenance(found, POLICY, StagedFiles())
        result = apply_plan(DeltaRsCommitter(str(tmp_path)), plan)
        assert result.error is None
        assert result.left == ()
        oldest = TableLog.of(found).first
        after = {version: rows(version) for version in range(oldest, newest + 1)}
        assert after == {version: before[version] for version in after}
    assert oldest > 0
    assert spark.read.format("delta").load(url).count() == len(rows(newest))
