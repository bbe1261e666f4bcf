"""A source that is deleted and created again is refused, or lands completely: no third way."""

from __future__ import annotations

import shutil
import threading
from contextlib import suppress
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any, Literal, Protocol
from uuid import uuid4

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from headgate.config import Delta, Kafka, PipelineConfig, Registry
from headgate.engine.events import BatchLanded, Idle
from headgate.engine.runner import RunOptions
from headgate.errors import HeadgateError
from headgate.lab.destination import DeltaDestination, Destination, KafkaDestination
from headgate.lab.games import GamesPlan
from headgate.lab.services import Services
from headgate.lake.ledger_entries import BatchEntry
from headgate.lake.ledger_snapshot import LedgerSnapshot
from headgate.lake.staged import StagedBatchNote
from headgate.run import run_pipeline
from headgate.sources import stream as stream_module
from headgate.sources.delta import SourceTable
from headgate.sources.kafka import Topics, delete_topics
from headgate.sources.stop_signal import StopSignal
from headgate.testing import Crash
from tests.run.conftest import WRAPPER, Told, places, simulate

ONCE = RunOptions(once=True)
FROM_LEDGER = RunOptions(once=True, from_ledger=True)
OLD = 200
"""Records of the source before it is replaced."""
Size = Literal["fewer", "as many", "more"]
SIZES: tuple[Size, ...] = ("fewer", "as many", "more")
RECORDS = {"fewer": 50, "as many": OLD, "more": 300}
Kind = Literal["topic", "table"]


class Inbox(Protocol):
    """A source that can be replaced."""

    pipeline: PipelineConfig

    def send(self, records: int) -> None:
        """Append records."""

    def replace(self, records: int) -> None:
        """Delete the source, and create it again under the same name."""


class Topic:
    """A topic of one partition."""

    def __init__(self, folder: Path, services: Services) -> None:
        self.name = f"games-{uuid4().hex[:8]}"
        self.source = Kafka(servers=services.servers, topics=[self.name])
        self.pipeline = PipelineConfig(
            name="games",
            source=self.source,
            registry=Registry(url=services.registry),
            envelope=WRAPPER,
            lake=str(folder / "lake"),
        )
        self.admin = AdminClient({"bootstrap.servers": services.servers, "log_level": 0})

    def send(self, records: int) -> None:
        _send(self.pipeline, KafkaDestination(self.source.servers, self.name, 1), records)

    def replace(self, records: int) -> None:
        delete_topics(self.source, [self.name])
        _until(lambda: self.name not in self.admin.list_topics(timeout=30).topics)
        _until_created(lambda: self.send(records))

    def truncate(self, before: int) -> None:
        """Delete the records before an offset, as retention does."""
        for done in self.admin.delete_records([TopicPartition(self.name, 0, before)]).values():
            done.result(30)


class Table:
    """A Delta table; each commit has 50 records."""

    def __init__(self, folder: Path, _: Services) -> None:
        self.path = folder / "inbox"
        self.pipeline = PipelineConfig(
            name="games",
            source=Delta(path=str(self.path)),
            registry=Registry(folder=str(folder / "schemas")),
            envelope=WRAPPER,
            lake=str(folder / "lake"),
        )

    def send(self, records: int) -> None:
        for _ in range(records // 50):
            _send(self.pipeline, DeltaDestination(str(self.path), "games"), 50)

    def replace(self, records: int) -> None:
        shutil.rmtree(self.path)
        self.send(records)


_seeds = count()


def _send(pipeline: PipelineConfig, destination: Destination, records: int) -> None:
    plan = GamesPlan(tables=2, versions=1, records=records, seed=next(_seeds))
    simulate(plan, pipeline.schema_registry, destination)


def _until(condition: Any) -> None:
    ends = monotonic() + 60
    while not condition():
        assert monotonic() < ends


def _until_created(send: Any) -> None:
    """Create a topic: for a moment, the broker may still be deleting the one before."""
    ends = monotonic() + 60
    while True:
        try:
            send()
            return
        except KafkaException:
            assert monotonic() < ends


def landed(inbox: Inbox) -> int:
    lake = inbox.pipeline.lake
    logs = [*Path(lake).glob("silver_*/_delta_log"), *Path(lake).glob("quarantine/_delta_log")]
    return sum(places(lake, log.parent.name).total() for log in logs)


def refusal(inbox: Inbox, options: RunOptions = ONCE) -> HeadgateError:
    with pytest.raises(HeadgateError) as refused:
        run_pipeline(inbox.pipeline, options)
    return refused.value


def require_data_lost(error: HeadgateError) -> None:
    assert error.code == "data-lost", error
    assert error.hint


@pytest.fixture(params=["topic", "table"])
def inbox(
    request: pytest.FixtureRequest, spark: SparkSession, services: Services, tmp_path: Path
) -> Inbox:
    return Topic(tmp_path, services) if request.param == "topic" else Table(tmp_path, services)


@pytest.fixture
def topic(spark: SparkSession, services: Services, tmp_path: Path) -> Topic:
    return Topic(tmp_path, services)


@pytest.mark.parametrize("size", SIZES)
def test_source_that_was_created_again_between_runs_is_refused(inbox: Inbox, size: Size) -> None:
    inbox.send(OLD)
    run_pipeline(inbox.pipeline, ONCE)
    inbox.replace(RECORDS[size])

    for _ in range(2):
        require_data_lost(refusal(inbox))
    assert landed(inbox) == OLD

    # The way on: the new one lands from its beginning.
    assert run_pipeline(inbox.pipeline, FROM_LEDGER).rows == RECORDS[size]
    inbox.send(OLD)
    assert run_pipeline(inbox.pipeline, ONCE).rows == OLD
    assert landed(inbox) == OLD + RECORDS[size] + OLD


@pytest.mark.parametrize("size", SIZES)
def test_source_that_is_created_again_during_a_run_is_refused(
    inbox: Inbox, size: Size, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "_CHECKED_EVERY_SECONDS", 0)
    inbox.send(OLD)
    told, stop, errors = Told(), StopSignal(), list[BaseException]()

    def run() -> None:
        try:
            run_pipeline(inbox.pipeline, RunOptions(trigger_milliseconds=200), told, stop)
        except BaseException as error:
            errors.append(error)
            told(Idle())  # wakes whoever waits for it

    running = threading.Thread(target=run)
    running.start()
    told.wait_for(lambda: bool(errors) or sum(event.rows for event in told.of(BatchLanded)) == OLD)
    assert not errors
    with suppress(HeadgateError):  # the run may notice while it is created
        inbox.replace(RECORDS[size])
    running.join(120)
    stop.request()
    (error,) = errors
    assert isinstance(error, HeadgateError)
    # The run may also notice that there is none for a moment.
    assert error.code in ("data-lost", "source-missing"), error
    assert landed(inbox) == OLD
    require_data_lost(refusal(inbox))


def test_source_that_is_created_again_while_a_batch_reads_it_is_refused(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox.send(OLD)
    run_pipeline(inbox.pipeline, ONCE)
    inbox.send(OLD)
    batch = stream_module.StreamSource._batch

    def replacing(*arguments: Any) -> Any:
        inbox.replace(3 * OLD)
        return batch(*arguments)

    monkeypatch.setattr(stream_module.StreamSource, "_batch", replacing)
    require_data_lost(refusal(inbox))
    monkeypatch.undo()
    assert landed(inbox) == OLD
    assert run_pipeline(inbox.pipeline, FROM_LEDGER).rows == 3 * OLD


def test_source_that_was_created_again_after_its_first_batch_was_staged_is_refused(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox.send(OLD)
    write = StagedBatchNote.write

    def crashing(*arguments: Any) -> None:
        write(*arguments)
        raise Crash

    monkeypatch.setattr(StagedBatchNote, "write", crashing)
    with pytest.raises(Crash):
        run_pipeline(inbox.pipeline, ONCE)
    monkeypatch.undo()
    inbox.replace(3 * OLD)

    require_data_lost(refusal(inbox))
    assert landed(inbox) == 0
    run_pipeline(inbox.pipeline, FROM_LEDGER)
    assert landed(inbox) == 4 * OLD


def test_source_that_was_created_again_before_its_first_batch_is_refused(inbox: Inbox) -> None:
    """The checkpoint has a position before anything has landed: the end of the old source."""
    inbox.send(OLD)
    latest = inbox.pipeline.source.model_copy(update={"start": "latest"})
    inbox.pipeline = inbox.pipeline.model_copy(update={"source": latest})
    assert run_pipeline(inbox.pipeline, ONCE).rows == 0
    inbox.replace(3 * OLD)
    require_data_lost(refusal(inbox))
    assert landed(inbox) == 0


def test_ledger_without_ids_adopts_those_of_now(inbox: Inbox, monkeypatch: Any) -> None:
    inbox.send(OLD)
    with monkeypatch.context() as patched:
        patched.setattr(Topics, "ids", lambda *_: {})
        patched.setattr(SourceTable, "ids", lambda _: {})
        run_pipeline(inbox.pipeline, ONCE)
    Path(inbox.pipeline.checkpoint, "source_ids.json").unlink()
    assert _recorded_ids(inbox) == {}
    inbox.send(OLD)
    assert run_pipeline(inbox.pipeline, ONCE).rows == OLD
    assert len(_recorded_ids(inbox)) == 1
    inbox.replace(3 * OLD)
    require_data_lost(refusal(inbox))


def _recorded_ids(inbox: Inbox) -> dict[str, str]:
    ledger = LedgerSnapshot.open(inbox.pipeline.lake, inbox.pipeline.ledger, "games")
    batch = ledger.newest(BatchEntry)
    assert batch is not None
    return dict(batch.entry.source_ids)


@pytest.mark.parametrize("size", SIZES)
def test_brokers_without_ids_compare_offsets_only(
    topic: Topic, size: Size, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What remains for old brokers: only a topic that is shorter is noticed."""
    monkeypatch.setattr(Topics, "ids", lambda *_: {})
    topic.send(OLD)
    run_pipeline(topic.pipeline, ONCE)
    topic.replace(RECORDS[size])
    if size == "fewer":
        require_data_lost(refusal(topic))
    else:
        assert run_pipeline(topic.pipeline, ONCE).rows == max(0, RECORDS[size] - OLD)


def test_records_that_were_deleted_before_they_were_read_are_an_error(topic: Topic) -> None:
    topic.send(OLD)
    run_pipeline(topic.pipeline, ONCE)
    topic.send(OLD)
    topic.truncate(OLD + 50)
    require_data_lost(refusal(topic))
    assert landed(topic) == OLD


def test_records_may_be_deleted_once_they_were_read(topic: Topic) -> None:
    topic.send(OLD)
    run_pipeline(topic.pipeline, ONCE)
    topic.truncate(OLD)
    assert run_pipeline(topic.pipeline, ONCE).rows == 0
    topic.send(OLD)
    assert run_pipeline(topic.pipeline, ONCE).rows == OLD


def test_only_the_topic_that_was_created_again_is_read_again(topic: Topic) -> None:
    other = Topic(Path(topic.pipeline.lake).parent, _services_of(topic))
    both = topic.source.model_copy(update={"topics": [topic.name, other.name]})
    topic.pipeline = topic.pipeline.model_copy(update={"source": both})
    topic.send(OLD)
    other.send(OLD)
    assert run_pipeline(topic.pipeline, ONCE).rows == 2 * OLD
    topic.replace(300)
    other.send(50)
    error = refusal(topic)
    require_data_lost(error)
    assert topic.name in error.message
    assert run_pipeline(topic.pipeline, FROM_LEDGER).rows == 350
    assert run_pipeline(topic.pipeline, ONCE).rows == 0


def test_another_topic_can_follow_and_the_first_one_can_come_back(topic: Topic) -> None:
    first, other = topic.pipeline, Topic(Path(topic.pipeline.lake).parent, _services_of(topic))
    topic.send(OLD)
    run_pipeline(first, ONCE)
    other.send(3 * OLD)
    topic.pipeline = first.model_copy(update={"source": other.source})
    require_data_lost(refusal(topic))
    assert landed(topic) == OLD
    topic.send(50)
    assert run_pipeline(first, ONCE).rows == 50
    # The way on: the pipeline ends with the first topic, and begins with the other.
    assert run_pipeline(topic.pipeline, FROM_LEDGER).rows == 3 * OLD


def _services_of(topic: Topic) -> Services:
    registry = topic.pipeline.schema_registry.url
    assert registry is not None
    return Services(topic.source.servers, registry, Path(), {})


def test_table_that_was_moved_away_and_back_goes_on(
    spark: SparkSession, services: Services, tmp_path: Path
) -> None:
    table = Table(tmp_path, services)
    table.send(OLD)
    run_pipeline(table.pipeline, ONCE)
    away = tmp_path / "away"
    table.path.rename(away)
    table.send(3 * OLD)
    require_data_lost(refusal(table))
    assert landed(table) == OLD
    shutil.rmtree(table.path)
    away.rename(table.path)
    table.send(50)
    assert run_pipeline(table.pipeline, ONCE).rows == 50
    assert landed(table) == OLD + 50


def test_table_that_was_emptied_is_refused(
    spark: SparkSession, services: Services, tmp_path: Path
) -> None:
    table = Table(tmp_path, services)
    table.send(OLD)
    run_pipeline(table.pipeline, ONCE)
    DeltaTable(table.path).delete()
    table.send(OLD)
    require_data_lost(refusal(table))
    assert landed(table) == OLD
