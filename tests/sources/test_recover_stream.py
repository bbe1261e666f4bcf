"""Where a run of a stream continues, if what it reads is another topic or table by now."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from headgate.config import Delta, Kafka, PipelineConfig, Registry, Wrapper
from headgate.errors import SourceError
from headgate.lake.ledger import Progress
from headgate.lake.staged import StagedBatch
from headgate.sources import delta, stream
from headgate.sources.batch import Recovery
from headgate.sources.delta import TABLE, SourceTable
from headgate.sources.stop_signal import StopSignal
from headgate.sources.stream import StreamSource

ENVELOPE = Wrapper(message="wrapper", route="game_name", schema_id="schema_id", payload="payload")
LANDED = Progress("mine", 0, 3, {"games": {"0": 40}}, (), {"games": "old"})
BEGUN = replace(LANDED, landed=None, ended_at=None, source_ids={})
STAGED = StagedBatch(4, 4, {"games": {"0": 40}}, {"games": {"0": 50}}, (), 1, {"games": "old"})


class Stream:
    """A stream whose checkpoint has begun with batch 0, or has done some."""

    def __init__(self, folder: Path, source: Kafka | Delta) -> None:
        self.pipeline = PipelineConfig(
            name="games",
            source=source,
            registry=Registry(folder=str(folder / "schemas")),
            envelope=ENVELOPE,
            lake=str(folder / "lake"),
        )
        self.checkpoint = Path(self.pipeline.checkpoint)

    def begin(self, batches: int) -> None:
        """Write what Spark writes until a batch is begun."""
        files = {"metadata": '{"id": "mine"}'}
        files |= {f"offsets/{batch}": "" for batch in range(batches + 1)}
        files |= {f"commits/{batch}": "" for batch in range(batches)}
        for name, text in files.items():
            path = self.checkpoint / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def recover(
        self,
        progress: Progress | None,
        staged: StagedBatch | None = None,
        from_ledger: bool = False,
    ) -> Recovery:
        source = StreamSource(
            self.pipeline,
            StopSignal(),
            once=True,
            from_ledger=from_ledger,
            trigger_milliseconds=1,
        )
        return source.recover(progress, staged)

    def require_refused(self, progress: Progress | None, staged: StagedBatch | None = None) -> None:
        with pytest.raises(SourceError) as refused:
            self.recover(progress, staged)
        assert refused.value.code == "data-lost"

    def recorded(self) -> object:
        return json.loads((self.checkpoint / "source_ids.json").read_text())


class Brokers:
    """Topics with ids, in place of a broker."""

    def __init__(self) -> None:
        self.ids = {"games": "old"}


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    brokers = Brokers()

    class FakeTopics:
        def __init__(self, source: Kafka) -> None: ...

        def ids(self, topics: set[str], seconds: float = 0) -> dict[str, str]:
            return {topic: brokers.ids[topic] for topic in topics if topic in brokers.ids}

    monkeypatch.setattr(stream, "Topics", FakeTopics)
    monkeypatch.setattr(stream, "require_topics", lambda source: dict.fromkeys(source.topics, 1))
    return brokers


@pytest.fixture
def topic(tmp_path: Path, brokers: Brokers) -> Stream:
    return Stream(tmp_path, Kafka(servers="nowhere:1", topics=["games"]))


def test_first_run_records_what_its_offsets_count_in(topic: Stream, brokers: Brokers) -> None:
    topic.recover(None)
    assert topic.recorded() == {"games": "old"}
    topic.begin(0)
    topic.recover(None)
    brokers.ids = {"games": "new"}
    topic.require_refused(None)
    topic.require_refused(BEGUN)
    # Nothing has landed, so that it begins as any new pipeline.
    assert topic.recover(BEGUN, from_ledger=True) == Recovery(0, None, lands_staged=False)
    assert topic.recorded() == {"games": "new"}
    assert not (topic.checkpoint / "metadata").exists()


def test_replaced_topic_continues_behind_the_ledger_with_a_new_checkpoint(
    topic: Stream, brokers: Brokers
) -> None:
    topic.recover(None)
    topic.begin(4)
    brokers.ids = {"games": "new"}
    topic.require_refused(LANDED)
    assert topic.recover(LANDED, from_ledger=True) == Recovery(4, None, lands_staged=False)
    assert topic.recorded() == {"games": "new"}
    # Its first batch was begun, but has not landed.
    topic.begin(0)
    started = replace(LANDED, query_id="mine", first_version=4)
    assert topic.recover(started).first_version == 4


def test_staged_batch_lands_before_the_replaced_topic(topic: Stream, brokers: Brokers) -> None:
    topic.recover(None)
    topic.begin(4)
    before = replace(LANDED, source_ids={})
    brokers.ids = {"games": "new"}
    topic.require_refused(before, STAGED)
    assert topic.recover(before, STAGED, from_ledger=True) == Recovery(5, None, lands_staged=True)


def test_positions_without_an_id_belong_to_the_present_topic(
    topic: Stream, brokers: Brokers
) -> None:
    topic.begin(4)
    unknown = replace(LANDED, source_ids={})
    assert topic.recover(unknown) == Recovery(0, 4, lands_staged=False)
    assert topic.recorded() == {"games": "old"}


def test_old_brokers_without_ids_are_not_compared(topic: Stream, brokers: Brokers) -> None:
    topic.recover(None)
    topic.begin(4)
    brokers.ids = {}
    assert topic.recover(LANDED) == Recovery(0, 4, lands_staged=False)


ROWS = pa.table({"value": pa.array([b"x"])})


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    path = tmp_path / "inbox"
    write_deltalake(path, ROWS)
    return path


def test_position_of_an_earlier_version_has_the_id_of_its_table(
    tmp_path: Path, inbox: Path
) -> None:
    table = Stream(tmp_path, Delta(path=str(inbox)))
    table.begin(4)
    own = {"reservoirVersion": 0, "index": -1, "reservoirId": DeltaTable(inbox).metadata().id}
    landed = replace(LANDED, ended_at=own, source_ids={})
    table.recover(landed)
    table.require_refused(replace(landed, ended_at={**own, "reservoirId": "another"}))


@pytest.mark.parametrize("commits", [1, 3, 6])
def test_table_that_was_created_again_has_another_id(inbox: Path, commits: int) -> None:
    for _ in range(2):
        write_deltalake(inbox, ROWS, mode="append")
    table = SourceTable(Delta(path=str(inbox)))
    before = table.ids()
    assert before == {TABLE: str(DeltaTable(inbox).metadata().id)}
    shutil.rmtree(inbox)
    assert table.ids() == {}
    for _ in range(commits):
        write_deltalake(inbox, ROWS, mode="append")
    assert table.ids() == {TABLE: str(DeltaTable(inbox).metadata().id)} != before


def test_table_is_opened_once_for_all_batches(inbox: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = SourceTable(Delta(path=str(inbox)))
    before = table.ids()
    write_deltalake(inbox, ROWS, mode="append")
    monkeypatch.delattr(delta, "open_table")
    assert table.ids() == before
