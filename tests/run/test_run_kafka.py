from __future__ import annotations

import shutil
from pathlib import Path
from threading import Thread

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from headgate.config import Kafka, Registry
from headgate.engine.events import BatchLanded, Ended, SchemaChanged
from headgate.engine.runner import RunOptions
from headgate.errors import CheckpointError, RegistryUnavailable, SourceError
from headgate.inspect.doctor import check_lake
from headgate.lab.destination import DeltaDestination, KafkaDestination
from headgate.lab.games import Game, GamesPlan, RecordMaker, games, register_versions
from headgate.lab.services import Services
from headgate.registry.open import open_registry
from headgate.run import run_pipeline
from headgate.schema.changes import AddColumn, CreateTable
from headgate.sources.stop_signal import StopSignal
from tests.readers import by_deltalake, by_duckdb, by_spark, comparable
from tests.rounds import rounds, some
from tests.run.conftest import Told, kafka_pipeline, places, simulate

ONCE = RunOptions(once=True)


def test_run_lands_every_record_in_exactly_one_place(
    spark: SparkSession, services: Services, topic: str, tmp_path: Path
) -> None:
    pipeline = kafka_pipeline(
        services.servers, services.registry, topic, tmp_path / "lake", bronze="bronze_games"
    )
    plan = GamesPlan(tables=20, versions=5, records=10_000, bad_share=0.01)
    simulate(plan, pipeline.schema_registry, KafkaDestination(services.servers, topic))

    ended = run_pipeline(pipeline, ONCE)

    silver, quarantine = places(pipeline.lake), places(pipeline.lake, "quarantine")
    assert ended.rows == silver.total()
    assert ended.quarantined == quarantine.total() > 0
    assert silver.total() + quarantine.total() == 10_000
    assert set((silver + quarantine).values()) == {1}
    assert len([*Path(pipeline.lake).glob("silver_*")]) == 20
    chess = DeltaTable(Path(pipeline.lake, "silver_chess"))
    assert {f"col_chess_game_{number}" for number in range(5)} <= {
        field.name for field in chess.schema().fields
    }
    bronze = places(pipeline.lake, "bronze_games")
    assert set(bronze) >= set(silver)
    assert set(bronze.values()) == {1}
    # A second run finds nothing to do.
    assert run_pipeline(pipeline, ONCE).batches == 0


@pytest.mark.parametrize("tables", some([2, 30], 30))
def test_run_takes_one_spark_job_a_batch_whatever_the_number_of_tables(
    tables: int, spark: SparkSession, services: Services, topic: str, tmp_path: Path
) -> None:
    pipeline = kafka_pipeline(services.servers, services.registry, topic, tmp_path / "lake")
    source = pipeline.source
    assert isinstance(source, Kafka)
    pipeline = pipeline.model_copy(update={"source": source.model_copy(update={"batch": 1000})})
    plan = GamesPlan(tables=tables, versions=2, records=3000)
    simulate(plan, pipeline.schema_registry, KafkaDestination(services.servers, topic))

    ended = run_pipeline(pipeline, ONCE)

    assert ended.batches >= 3
    assert _jobs_of_newest_stream(spark) == ended.batches


def _jobs_of_newest_stream(spark: SparkSession) -> int:
    """Spark gives all jobs of one streaming query the same group."""
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    groups = [
        (job.jobId(), job.jobGroup().get())
        for job in (jobs.apply(position) for position in range(jobs.size()))
        if job.jobGroup().isDefined()
    ]
    _, newest = max(groups)
    return sum(group == newest for _, group in groups)


def test_new_columns_and_a_new_game_land_while_the_run_goes_on(
    spark: SparkSession, services: Services, topic: str, tmp_path: Path
) -> None:
    pipeline = kafka_pipeline(services.servers, services.registry, topic, tmp_path / "lake")
    registry = open_registry(pipeline.schema_registry)
    destination = KafkaDestination(services.servers, topic)
    chess, go = games(2)
    told, stop = Told(), StopSignal()

    def send(*versions: tuple[Game, int]) -> None:
        registered = [
            one
            for game, version in versions
            for one in register_versions(registry, [game], [version])
        ]
        destination.send(RecordMaker(registered).make(100).values)
        destination.flush()

    send((chess, 1))
    options = RunOptions(trigger_milliseconds=200)
    running = Thread(target=run_pipeline, args=(pipeline, options, told, stop))
    running.start()
    told.wait_for(lambda: len(told.of(BatchLanded)) == 1)
    send((chess, 2), (go, 1))
    told.wait_for(lambda: sum(event.rows for event in told.of(BatchLanded)) == 200)
    stop.request()
    running.join(60)
    registry.close()

    changes = [event.change for event in told.of(SchemaChanged)]
    assert AddColumn("col_chess_game_1", "string") in changes
    assert [change for change in changes if isinstance(change, CreateTable)] == [
        CreateTable("silver_chess", 12),
        CreateTable("silver_go", 12),
    ]
    assert isinstance(told.events[-1], Ended)
    assert set(places(pipeline.lake).values()) == {1}
    assert places(pipeline.lake).total() == 200


def test_delta_source_gives_the_same_tables_as_kafka(
    spark: SparkSession, services: Services, topic: str, tmp_path: Path
) -> None:
    from headgate.config import Delta

    by_kafka = kafka_pipeline(services.servers, services.registry, topic, tmp_path / "one")
    inbox = str(tmp_path / "inbox")
    by_delta = by_kafka.model_copy(
        update={
            "source": Delta(path=inbox),
            "lake": str(tmp_path / "two"),
            "checkpoint": str(tmp_path / "two/_checkpoints/games"),
        }
    )
    plan = GamesPlan(tables=5, versions=3, records=2000, bad_share=0.02, seed=7)
    simulate(plan, by_kafka.schema_registry, KafkaDestination(services.servers, topic))
    simulate(plan, by_kafka.schema_registry, DeltaDestination(inbox, topic))

    run_pipeline(by_kafka, ONCE)
    run_pipeline(by_delta, ONCE)

    tables = {path.name for path in Path(by_kafka.lake).glob("silver_*")}
    assert tables == {path.name for path in Path(by_delta.lake).glob("silver_*")}
    for table in [*tables, "quarantine"]:
        assert _rows(by_kafka.lake, table) == _rows(by_delta.lake, table)


def _rows(lake: str, table: str) -> list[dict[str, object]]:
    """A table's rows but for where they came from; those of the quarantine have random ids."""
    rows = DeltaTable(Path(lake, table)).to_pyarrow_table()
    own = [name for name in rows.column_names if not name.startswith("_") and name != "id"]
    return sorted(rows.select(own).to_pylist(), key=repr)


@rounds(2, 4)
def test_tables_have_the_same_rows_in_spark_deltalake_and_duckdb(
    spark: SparkSession, services: Services, topic: str, tmp_path: Path, cases: int
) -> None:
    pipeline = kafka_pipeline(services.servers, services.registry, topic, tmp_path / "lake")
    destination = KafkaDestination(services.servers, topic)
    for versions in (1, 3):
        plan = GamesPlan(tables=3, versions=versions, records=500, bad_share=0.05)
        simulate(plan, pipeline.schema_registry, destination)
        run_pipeline(pipeline, ONCE)

    for table in ("silver_chess", "ledger", "silver_go", "quarantine")[:cases]:
        path = str(Path(pipeline.lake, table))
        expected = by_deltalake(path)
        assert len(expected)
        for found in (by_spark(spark, path), by_duckdb(path)):
            assert comparable(found, expected) == comparable(expected, expected)
    newest = spark.read.format("delta").load(str(Path(pipeline.lake, "silver_chess")))
    assert newest.where("_offset >= 0 AND user_name >= 'player_'").count() == newest.count()


@pytest.mark.soak
def test_run_with_spark_commits_lands_the_same_rows(
    spark: SparkSession, services: Services, topic: str, tmp_path: Path
) -> None:
    pipeline = kafka_pipeline(
        services.servers, services.registry, topic, tmp_path / "lake", commit="spark"
    )
    destination = KafkaDestination(services.servers, topic)
    for versions in (1, 2):
        plan = GamesPlan(tables=2, versions=versions, records=200, bad_share=0.05)
        simulate(plan, pipeline.schema_registry, destination)
        run_pipeline(pipeline, ONCE)

    found = places(pipeline.lake) + places(pipeline.lake, "quarantine")
    assert found.total() == 400
    assert set(found.values()) == {1}


def test_reset_checkpoint_is_refused_and_from_ledger_continues_without_duplicates(
    spark: SparkSession, services: Services, topic: str, tmp_path: Path
) -> None:
    pipeline = kafka_pipeline(services.servers, services.registry, topic, tmp_path / "lake")
    destination = KafkaDestination(services.servers, topic)
    plan = GamesPlan(tables=3, versions=1, records=300)
    simulate(plan, pipeline.schema_registry, destination)
    run_pipeline(pipeline, ONCE)
    shutil.rmtree(pipeline.checkpoint)
    simulate(plan, pipeline.schema_registry, destination)

    with pytest.raises(CheckpointError) as refused:
        run_pipeline(pipeline, ONCE)
    assert refused.value.code == "checkpoint-reset"
    assert "--from-ledger" in (refused.value.hint or "")

    ended = run_pipeline(pipeline, RunOptions(once=True, from_ledger=True))
    assert ended.rows == 300
    assert places(pipeline.lake).total() == 600
    assert set(places(pipeline.lake).values()) == {1}
    assert run_pipeline(pipeline, ONCE).batches == 0


def test_lake_that_was_put_back_is_refused_and_from_ledger_lands_what_is_missing(
    spark: SparkSession, services: Services, topic: str, tmp_path: Path
) -> None:
    pipeline = kafka_pipeline(services.servers, services.registry, topic, tmp_path / "lake")
    pipeline = pipeline.model_copy(update={"checkpoint": str(tmp_path / "checkpoint")})
    destination = KafkaDestination(services.servers, topic)
    plan = GamesPlan(tables=3, versions=1, records=300)
    for number in range(3):
        simulate(plan, pipeline.schema_registry, destination)
        run_pipeline(pipeline, ONCE)
        if number == 0:
            shutil.copytree(pipeline.lake, tmp_path / "copy")
    shutil.rmtree(pipeline.lake)
    shutil.copytree(tmp_path / "copy", pipeline.lake)
    simulate(plan, pipeline.schema_registry, destination)

    with pytest.raises(CheckpointError) as refused:
        run_pipeline(pipeline, ONCE)
    assert refused.value.code == "lake-behind"
    assert [one.state for one in check_lake(pipeline) if one.name == "checkpoint"] == ["fail"]
    assert places(pipeline.lake).total() == 300

    assert run_pipeline(pipeline, RunOptions(once=True, from_ledger=True)).rows == 900
    assert places(pipeline.lake).total() == 1200
    assert set(places(pipeline.lake).values()) == {1}
    assert run_pipeline(pipeline, ONCE).batches == 0


def test_second_copy_of_a_run_is_refused(
    spark: SparkSession, services: Services, topic: str, tmp_path: Path
) -> None:
    pipeline = kafka_pipeline(services.servers, services.registry, topic, tmp_path / "lake")
    plan = GamesPlan(tables=1, versions=1, records=10)
    simulate(plan, pipeline.schema_registry, KafkaDestination(services.servers, topic))
    told, stop = Told(), StopSignal()
    running = Thread(target=run_pipeline, args=(pipeline, RunOptions(), told, stop))
    running.start()
    told.wait_for(lambda: bool(told.of(BatchLanded)))

    with pytest.raises(CheckpointError) as refused:
        run_pipeline(pipeline, ONCE)

    stop.request()
    running.join(60)
    assert refused.value.code == "pipeline-in-use"


def test_registry_that_is_down_fails_the_batch_which_lands_once_it_is_back(
    spark: SparkSession, services: Services, topic: str, tmp_path: Path
) -> None:
    pipeline = kafka_pipeline(services.servers, services.registry, topic, tmp_path / "lake")
    plan = GamesPlan(tables=2, versions=1, records=50)
    simulate(plan, pipeline.schema_registry, KafkaDestination(services.servers, topic))
    nobody = Registry(url="http://127.0.0.1:9/apis/ccompat/v7", timeout="1s")

    with pytest.raises(RegistryUnavailable) as failed:
        run_pipeline(pipeline.model_copy(update={"registry": nobody}), ONCE)
    assert failed.value.code == "registry-unavailable"

    assert run_pipeline(pipeline, ONCE).rows == 50
    assert set(places(pipeline.lake).values()) == {1}


def test_missing_topic_and_missing_broker_are_named(
    spark: SparkSession, services: Services, tmp_path: Path
) -> None:
    for servers, word in ((services.servers, "no-such-topic"), ("127.0.0.1:9", "127.0.0.1:9")):
        pipeline = kafka_pipeline(servers, services.registry, "no-such-topic", tmp_path / "lake")
        with pytest.raises(SourceError, match=word):
            run_pipeline(pipeline, ONCE)
