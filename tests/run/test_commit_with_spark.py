"""Spark's committer keeps the same contract as that of delta-rs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from headgate.cdc.verify import verify
from headgate.config import Datastream, Files, PipelineConfig
from headgate.engine.events import GoldFailed, MergeFailed
from headgate.engine.runner import RunOptions
from headgate.lab.shop.simulate import DatabaseModel, ShopPlan, simulate_shop
from headgate.lake.commit import Committer
from headgate.lake.spark import SparkCommitter
from headgate.quarantine.filter import QuarantineFilter
from headgate.quarantine.operations import drop_quarantine
from headgate.run import run_pipeline
from tests.lake.committer_contract import CommitterContract
from tests.rounds import only
from tests.run.conftest import Told


@only(
    "test_table_is_created_with_rows_columns_and_mark",
    "test_required_marks_fence_a_commit",
)
class TestSparkCommitter(CommitterContract):
    @pytest.fixture
    def committer(self, spark: SparkSession, lake: Path) -> Committer:
        return SparkCommitter(lambda: spark, str(lake))


def test_spark_commits_to_every_table_of_a_lake(spark: SparkSession, tmp_path: Path) -> None:
    """Change logs, merged, history and derived tables, tombstones, quarantine and ledger."""
    model = DatabaseModel()
    *_, _ = simulate_shop(ShopPlan(tmp_path / "made", changes=300, changes_per_file=30), model)
    wanted = ("shop_orders",)
    files = [file for name in wanted for file in sorted((tmp_path / "made" / name).rglob("*.avro"))]
    landing = tmp_path / "landing"
    landing.mkdir()
    pipeline = PipelineConfig(
        name="shop",
        source=Files(path=str(landing)),
        envelope=Datastream(),
        lake=str(tmp_path / "lake"),
        history="history_{table}",
        commit="spark",
        gold={"rows_of_{route}": "SELECT count(*) AS n FROM merged", "all_rows": _ALL_ROWS},
    )
    (landing / "broken.avro").write_bytes(b"Obj\x01 and nothing that follows")
    for part in (files[::2], files[1::2]):
        for number, file in enumerate(part):
            shutil.copy(file, landing / f"{len(list(landing.iterdir()))}-{number}.avro")
        events = Told()
        run_pipeline(pipeline, RunOptions(once=True), events)
        assert not events.of(MergeFailed)
        assert not events.of(GoldFailed)
    assert drop_quarantine(pipeline, QuarantineFilter()) == {"file_unreadable": 1}

    lake = Path(pipeline.lake)
    counts = {name: len(model.tables[name.removeprefix("shop_")].rows) for name in wanted}
    assert {name: len(_rows(lake, name)) for name in wanted} == counts
    assert {name: _rows(lake, f"rows_of_{name}")[0]["n"] for name in wanted} == counts
    assert {row["route"]: row["n"] for row in _rows(lake, "all_rows")} == counts
    assert {one.total for one in verify(pipeline)} == {0}
    assert [row["state"] for row in _rows(lake, "quarantine")] == ["dropped"]
    logs = [log for log in lake.rglob("_delta_log/*.json") if log.stem.isdigit()]
    assert {log.parts[-3] for log in logs} >= {
        *wanted,
        "log_shop_orders",
        "history_orders",
        "rows_of_shop_orders",
        "all_rows",
        "quarantine",
        "ledger",
        "_files",
    }
    for log in logs:
        actions = map(json.loads, log.read_text().splitlines())
        (engine,) = [one["commitInfo"]["engineInfo"] for one in actions if "commitInfo" in one]
        assert engine.startswith("Apache-Spark"), log


_ALL_ROWS = "SELECT route, count(*) AS n FROM merged GROUP BY route"


def _rows(lake: Path, table: str) -> list[dict[str, Any]]:
    return list(DeltaTable(lake / table).to_pyarrow_table().to_pylist())
