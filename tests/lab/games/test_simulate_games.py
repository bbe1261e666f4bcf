from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from headgate.lab.destination import DeltaDestination
from headgate.lab.games import GamesPlan, simulate_games
from headgate.registry.folder import FolderRegistry
from headgate.schema.origin import RECORD_COLUMNS


class Memory:
    """A destination that keeps what it gets."""

    def __init__(self) -> None:
        self.sent: list[pa.BinaryArray] = []
        self.flushed = 0

    def send(self, values: pa.BinaryArray) -> None:
        self.sent.append(values)

    def flush(self) -> None:
        self.flushed += 1


def test_as_many_records_are_sent_as_planned(tmp_path: Path) -> None:
    memory = Memory()
    plan = GamesPlan(tables=3, versions=2, records=120, bad_share=0.1)
    *_, last = simulate_games(plan, FolderRegistry(tmp_path), memory)
    assert sum(len(values) for values in memory.sent) == last.records == 120
    assert last.bad.total() > 0
    assert memory.flushed == 1


def test_same_plan_gives_the_same_records(tmp_path: Path) -> None:
    sent = []
    for folder in ("a", "b"):
        memory = Memory()
        list(simulate_games(GamesPlan(3, 2, 50, seed=5), FolderRegistry(tmp_path / folder), memory))
        sent.append(pa.concat_arrays(memory.sent))
    assert sent[0].equals(sent[1])


def test_rate_is_kept_by_pauses_between_portions(tmp_path: Path) -> None:
    memory, pauses = Memory(), list[float]()
    plan = GamesPlan(tables=2, versions=1, records=3, rate=0.01)
    list(simulate_games(plan, FolderRegistry(tmp_path), memory, sleep=pauses.append))
    assert [len(values) for values in memory.sent] == [1, 1, 1]
    assert [round(pause, -2) for pause in pauses] == [100, 200, 300]
    assert memory.flushed == 4


def test_simulation_without_an_end_goes_on(tmp_path: Path) -> None:
    plan = GamesPlan(tables=2, versions=1, records=None, rate=1_000)
    steps = simulate_games(plan, FolderRegistry(tmp_path), Memory(), sleep=lambda _: None)
    assert [next(steps).records for _ in range(3)] == [500, 1_000, 1_500]


def test_progress_is_reported(tmp_path: Path) -> None:
    reported: list[str] = []
    plan = GamesPlan(tables=3, versions=2, records=1)
    list(simulate_games(plan, FolderRegistry(tmp_path), Memory(), report=reported.append))
    assert reported == ["Registering 6 schemas"]


def test_delta_table_has_the_columns_of_kafka_and_offsets_that_go_on(tmp_path: Path) -> None:
    path = str(tmp_path / "inbox")
    for values in ([b"a", None], [b"c"]):
        destination = DeltaDestination(path, "games")
        destination.send(pa.array(values, pa.binary()))
        destination.flush()
    rows = DeltaTable(path).to_pyarrow_table().sort_by("offset")
    assert pa.schema(rows.schema).names == RECORD_COLUMNS.names
    assert rows["offset"].to_pylist() == [0, 1, 2]
    assert rows["value"].to_pylist() == [b"a", None, b"c"]
    assert set(rows["topic"].to_pylist()) == {"games"}
