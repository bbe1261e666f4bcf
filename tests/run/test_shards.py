"""Shards over a real topic: each record once over all tables, with any number of them."""

from __future__ import annotations

from pathlib import Path
from threading import Thread

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from headgate.config import GoldQuery, PipelineConfig
from headgate.config.shards import Shard
from headgate.engine.runner import RunOptions
from headgate.errors import CheckpointError
from headgate.lab.destination import KafkaDestination
from headgate.lab.games import GamesPlan
from headgate.lab.services import Services
from headgate.run import run_pipeline
from tests.run.conftest import kafka_pipeline, places, simulate

GOLD = {
    "gold_{route}_rows": GoldQuery(sql="SELECT count(*) AS number FROM silver"),
    "all_rows": GoldQuery(sql="SELECT route, count(*) AS number FROM silver GROUP BY route"),
}


def run_all(pipeline: PipelineConfig, shards: int) -> None:
    """Run all shards side by side; the first once more, for tables over all routes."""
    declared = pipeline.model_copy(update={"shards": shards})
    errors: list[BaseException] = []

    def run(number: int) -> None:
        shard = None if shards == 1 else Shard(number, shards)
        try:
            run_pipeline(declared, RunOptions(once=True, shard=shard))
        except BaseException as error:
            errors.append(error)

    threads = [Thread(target=run, args=(number,)) for number in range(1, shards + 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    run(1)


def test_from_one_to_four_shards_in_mid_life(
    spark: SparkSession, services: Services, topic: str, tmp_path: Path
) -> None:
    pipeline = kafka_pipeline(
        services.servers, services.registry, topic, tmp_path / "lake", gold=GOLD
    )
    total = 0
    for seed, shards in enumerate((1, 4, 1)):
        plan = GamesPlan(tables=20, versions=3, records=4_000, bad_share=0.01, seed=seed)
        simulate(plan, pipeline.schema_registry, KafkaDestination(services.servers, topic))
        total += 4_000
        run_all(pipeline, shards)
        silver, quarantine = places(pipeline.lake), places(pipeline.lake, "quarantine")
        assert silver.total() + quarantine.total() == total
        assert set((silver + quarantine).values()) == {1}
        counts = DeltaTable(Path(pipeline.lake, "all_rows")).to_pyarrow_table().to_pylist()
        assert sum(row["number"] for row in counts) == silver.total()
        of_chess = DeltaTable(Path(pipeline.lake, "gold_chess_rows")).to_pyarrow_table()
        chess = DeltaTable(Path(pipeline.lake, "silver_chess")).count()
        assert of_chess["number"].to_pylist() == [chess]


def test_shards_at_different_places_keep_their_number(
    spark: SparkSession, services: Services, topic: str, tmp_path: Path
) -> None:
    pipeline = kafka_pipeline(services.servers, services.registry, topic, tmp_path / "lake")
    plan = GamesPlan(tables=5, versions=1, records=500)
    simulate(plan, pipeline.schema_registry, KafkaDestination(services.servers, topic))
    two = pipeline.model_copy(update={"shards": 2})
    run_pipeline(two, RunOptions(once=True, shard=Shard(1, 2)))
    with pytest.raises(CheckpointError) as caught:
        run_pipeline(pipeline, RunOptions(once=True))
    assert caught.value.code == "shards-apart"
