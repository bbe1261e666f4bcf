"""Simulated records through the whole engine, without Spark."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

import headgate
from headgate.engine.events import BatchLanded
from headgate.lab.games import Made, RecordMaker, games, register_versions
from headgate.testing import InProcessLake, Record
from tests.readers import by_deltalake, by_duckdb, comparable
from tests.rounds import some

TABLES, VERSIONS = 10, 3


class Simulation:
    """Games, and a lake that their records land in."""

    def __init__(self, folder: Path, max_tables: int = 100, bad_share: float = 0.01) -> None:
        pipeline = headgate.Pipeline(
            name="games",
            source=headgate.Delta(path=str(folder / "inbox")),
            registry=str(folder / "schemas"),
            envelope=headgate.Wrapper(
                message="wrapper", route="game_name", schema_id="schema_id", payload="payload"
            ),
            lake=str(folder / "lake"),
            max_tables=max_tables,
        )
        self.landing = InProcessLake(pipeline, folder)
        versions = register_versions(self.landing.registry, games(TABLES), range(1, VERSIONS + 1))
        self.maker = RecordMaker(versions, seed=1, bad_share=bad_share)
        self.produced = 0

    @property
    def lake(self) -> Path:
        return self.landing.path

    def land(self, count: int) -> tuple[Made, headgate.RunResult]:
        """Land records of two partitions, as Kafka would give them."""
        made = self.maker.make(count)
        offsets = range(self.produced, self.produced + count)
        self.produced += count
        result = self.landing.land(
            Record(value, key=b"k", partition=offset % 2)
            for offset, value in zip(offsets, made.values.to_pylist(), strict=True)
        )
        return made, result

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


def test_every_bad_record_has_the_reason_it_was_made_for(tmp_path: Path) -> None:
    simulation = Simulation(tmp_path, bad_share=0.3)
    made, result = simulation.land(2_000)
    assert result.quarantined == {reason.value: count for reason, count in made.bad.items()}
    rows = {name: len(table) for name, table in simulation.tables().items()}
    assert rows.pop("quarantine") == made.bad.total()
    assert rows == {f"silver_{name}": count for name, count in made.by_game.items()}


@pytest.fixture
def landed(tmp_path: Path) -> Simulation:
    simulation = Simulation(tmp_path)
    for count in (1_000, 1, 999):
        simulation.land(count)
    return simulation


def test_every_record_is_in_exactly_one_place(landed: Simulation) -> None:
    assert landed.places() == landed.expected_places()
    assert len(landed.tables()) == TABLES + 1
    batches = [event for event in landed.landing.events if isinstance(event, BatchLanded)]
    assert sum(event.records for event in batches) == 2_000
    for game in games(TABLES):
        names = landed.tables()[f"silver_{game.name}"].column_names
        assert set(game.columns(VERSIONS)) <= set(names)


def test_deltalake_and_duckdb_read_the_same_rows(landed: Simulation) -> None:
    for name, table in landed.tables().items():
        by_other = by_duckdb(str(landed.lake / name))
        assert set(by_other.column_names) == set(table.column_names)
        assert comparable(by_other, table) == comparable(table, table)


@pytest.mark.parametrize("max_tables", some([1, 4, 10], 4))
def test_no_more_tables_than_the_cap_are_made_and_they_are_always_the_same(
    tmp_path: Path, max_tables: int
) -> None:
    made = []
    for attempt in ("first", "second"):
        simulation = Simulation(tmp_path / attempt, max_tables)
        for _ in range(2):
            simulation.land(300)
        assert simulation.places() == simulation.expected_places()
        reasons = Counter(simulation.tables()["quarantine"]["reason"].to_pylist())
        assert (reasons["too_many_tables"] > 0) == (max_tables < TABLES)
        made.append([name for name in simulation.tables() if name != "quarantine"])
    assert len(made[0]) == max_tables
    assert made[0] == made[1]
