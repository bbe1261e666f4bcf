"""Simulated records through the whole engine, without Spark."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headgate.config import Registry
from headgate.engine.batch import BatchLander
from headgate.engine.events import BatchLanded, Event
from headgate.engine.plan import BatchPlan
from headgate.engine.record_plan import RecordPlan
from headgate.engine.task_results import decode_results, task_results
from headgate.envelopes.wrapper import WrapperEnvelope
from headgate.lab.games import Made, RecordMaker, games, register_versions
from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.lake.ledger import Ledger
from headgate.lake.names import TableNames
from headgate.lake.staged import StagedBatchNote, StagedFile
from headgate.registry.folder import FolderRegistry
from headgate.schema.origin import RECORD_COLUMNS
from headgate.sources.batch import Extent
from tests.readers import by_deltalake, by_duckdb, comparable

TABLES, VERSIONS = 10, 3


class Simulation:
    """Games, and a lake that their records land in."""

    def __init__(self, folder: Path, max_tables: int = 100, bad_share: float = 0.01) -> None:
        self.lake = folder / "lake"
        registry = FolderRegistry(folder / "schemas")
        versions = register_versions(registry, games(TABLES), range(1, VERSIONS + 1))
        self.maker = RecordMaker(versions, seed=1, bad_share=bad_share)
        self.events: list[Event] = []
        self.plan = RecordPlan(
            lake=str(self.lake),
            names=TableNames("silver_{route}", "quarantine", "ledger"),
            envelope=WrapperEnvelope("wrapper", "game_name", "schema_id", "payload"),
            registry=Registry(folder=str(registry.folder)),
            version=0,
            known_tables=frozenset(),
            max_tables=max_tables,
            max_record_bytes=1 << 20,
        )
        ledger = Ledger(str(self.lake), "ledger", "games")
        ledger.start("query", 0)
        committer = DeltaRsCommitter(str(self.lake))
        note = StagedBatchNote(str(self.lake), "games")
        self.lander = BatchLander(ledger, note, committer, self.plan, self.events.append)
        self.produced = 0

    def batch(self, count: int) -> tuple[Made, pa.Table]:
        """Records of two partitions, as Kafka would give them."""
        made = self.maker.make(count)
        offsets = range(self.produced, self.produced + count)
        self.produced += count
        columns = {
            "value": made.values,
            "topic": ["games"] * count,
            "partition": [offset % 2 for offset in offsets],
            "offset": [offset // 2 for offset in offsets],
            "timestamp": [0] * count,
            "key": [b"k"] * count,
            "headers": [None] * count,
        }
        return made, pa.table(columns, schema=RECORD_COLUMNS)

    def staged(self, plan: BatchPlan, records: pa.Table) -> list[StagedFile]:
        """One task for each partition."""
        tasks = [records.filter(pc.equal(records["partition"], one)) for one in (0, 1)]
        rows = [row for task in tasks for row in task_results(plan.stage(task.to_batches()))]
        return decode_results(rows)

    def land(self, batch: int, count: int) -> Made:
        made, records = self.batch(count)
        self.lander.land(Extent(batch), lambda plan: self.staged(plan, records))
        return made

    def tables(self) -> dict[str, pa.Table]:
        logs = sorted(self.lake.glob("*/_delta_log"))
        names = [log.parent.name for log in logs if log.parent.name != "ledger"]
        return {name: by_deltalake(str(self.lake / name)) for name in names}

    def places(self) -> Counter[tuple[str, int, int]]:
        return Counter(
            place
            for table in self.tables().values()
            for place in zip(
                *(table[name].to_pylist() for name in ("_topic", "_partition", "_offset")),
                strict=True,
            )
        )

    def expected_places(self) -> Counter[tuple[str, int, int]]:
        return Counter(("games", at % 2, at // 2) for at in range(self.produced))


def test_staging_gives_every_bad_record_the_reason_it_was_made_for(tmp_path: Path) -> None:
    simulation = Simulation(tmp_path, bad_share=0.3)
    made, records = simulation.batch(2_000)
    files = simulation.staged(simulation.plan, records)
    reasons: Counter[str] = Counter()
    rows: Counter[str] = Counter()
    for file in files:
        reasons.update(file.reasons or {})
        rows[file.table] += file.rows
    assert reasons == {reason.value: count for reason, count in made.bad.items()}
    assert rows.pop("quarantine") == made.bad.total()
    assert rows == {f"silver_{name}": count for name, count in made.by_game.items()}


@pytest.fixture
def landed(tmp_path: Path) -> Simulation:
    simulation = Simulation(tmp_path)
    for batch, count in enumerate((1_000, 1, 999)):
        simulation.land(batch, count)
    return simulation


def test_every_record_is_in_exactly_one_place(landed: Simulation) -> None:
    assert landed.places() == landed.expected_places()
    assert len(landed.tables()) == TABLES + 1
    batches = [event for event in landed.events if isinstance(event, BatchLanded)]
    assert sum(event.records for event in batches) == 2_000
    for game in games(TABLES):
        names = landed.tables()[f"silver_{game.name}"].column_names
        assert set(game.columns(VERSIONS)) <= set(names)


def test_deltalake_and_duckdb_read_the_same_rows(landed: Simulation) -> None:
    for name, table in landed.tables().items():
        by_other = by_duckdb(str(landed.lake / name))
        assert set(by_other.column_names) == set(table.column_names)
        assert comparable(by_other, table) == comparable(table, table)


@pytest.mark.parametrize("max_tables", [1, 4, 10])
def test_no_more_tables_than_the_cap_are_made_and_they_are_always_the_same(
    tmp_path: Path, max_tables: int
) -> None:
    made = []
    for attempt in ("first", "second"):
        simulation = Simulation(tmp_path / attempt, max_tables)
        for batch in range(2):
            simulation.land(batch, 300)
        assert simulation.places() == simulation.expected_places()
        reasons = Counter(simulation.tables()["quarantine"]["reason"].to_pylist())
        assert (reasons["too_many_tables"] > 0) == (max_tables < TABLES)
        made.append([name for name in simulation.tables() if name != "quarantine"])
    assert len(made[0]) == max_tables
    assert made[0] == made[1]
