"""A flood of schema ids that the registry does not have: few calls, little memory, no loss."""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from unittest.mock import patch

import pytest
from deltalake import DeltaTable

import headgate
from headgate.formats.decoders import MAX_UNKNOWN
from headgate.quarantine.filter import QuarantineFilter
from headgate.quarantine.operations import replay_quarantine
from headgate.registry.folder import FolderRegistry
from headgate.registry.registry import SchemaKey, SchemaText
from headgate.testing import InProcessLake, Record
from headgate.testing.lake import stage_in_process
from tests.engine.games import SCHEMAS, GamesLake, extent, record, records

FLOOD = 30_000
MOST_MEMORY = 1_500 << 20


@contextmanager
def calls() -> Iterator[Counter[SchemaKey]]:
    """Count the lookups of each id."""
    asked: Counter[SchemaKey] = Counter()
    fetch = FolderRegistry.fetch

    def counting(self: FolderRegistry, key: SchemaKey) -> SchemaText:
        asked[key] += 1
        return fetch(self, key)

    with patch.object(FolderRegistry, "fetch", counting):
        yield asked


def land_flood(folder: Path) -> tuple[int, int]:
    """Land it in a process of its own; returns the number of calls and the memory it took."""
    lake = GamesLake(folder)
    values = [record("chess", 1, 1000 + number) for number in range(FLOOD)]
    good = [record("chess", n) for n in range(200)]
    with calls() as asked:
        lake.start().land(extent(0), stage_in_process(records(values + good)))
    return asked.total(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def test_flood_of_unknown_ids_costs_few_calls_and_little_memory(tmp_path: Path) -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        asked, memory = process.submit(land_flood, tmp_path).result()
    assert asked == MAX_UNKNOWN + 1
    assert memory < MOST_MEMORY
    lake = tmp_path / "lake"
    assert DeltaTable(lake / "silver_chess").count() == 200
    kept = DeltaTable(lake / "quarantine").to_pyarrow_table()
    assert set(kept["reason"].to_pylist()) == {"schema_unknown"}
    assert set(kept["route"].to_pylist()) == {"chess"}
    wanted = {str(1000 + n): record("chess", 1, 1000 + n) for n in range(FLOOD)}
    found = dict(zip(kept["schema_id"].to_pylist(), kept["value"].to_pylist(), strict=True))
    assert found == wanted


def test_ids_of_many_records_are_looked_up_first(tmp_path: Path) -> None:
    lake = GamesLake(tmp_path)
    number = lake.register("event", f"{SCHEMAS[0]} // late")
    flood = [record("chess", 1, 1000 + at) for at in range(300)]
    lake.land([*flood, *(record("chess", n, number) for n in range(3))])
    assert len(lake.rows("silver_chess")) == 3


def test_replay_lands_what_a_flood_has_kept_out(tmp_path: Path) -> None:
    lake = GamesLake(tmp_path)
    late = len(SCHEMAS) + 250
    lake.land([record("chess", at, len(SCHEMAS) + at) for at in range(1, 301)])
    (tmp_path / "schemas" / f"{late}.event.proto").write_text(SCHEMAS[0])
    with calls() as asked:
        replayed = replay_quarantine(lake.pipeline, QuarantineFilter(), lambda _: None)
    assert asked.total() == 300
    assert (replayed.taken, replayed.landed) == (300, {"silver_chess": 1})
    assert [row["n"] for row in lake.rows("silver_chess")] == [250]
    assert len(lake.quarantine()) == 299


@pytest.mark.parametrize("by", ["topic", "record"])
def test_flood_of_framed_records_is_kept(tmp_path: Path, by: str) -> None:
    pipeline = headgate.Pipeline(
        name="framed",
        source=headgate.Delta(path=str(tmp_path / "inbox")),
        registry=str(tmp_path / "schemas"),
        envelope={"confluent": {"route": by}},
        lake=str(tmp_path / "lake"),
    )
    lake = InProcessLake(pipeline, tmp_path)
    number = lake.register("event", SCHEMAS[0])
    flood = [
        Record(b"\0" + at.to_bytes(4, "big") + b"\0\x08\x01", topic="games")
        for at in range(99, 999)
    ]
    with calls() as asked:
        result = lake.land([*flood, *(lake.record("games", number, {"n": n}) for n in (5, 6))])
    assert asked.total() <= MAX_UNKNOWN + 4
    assert result.quarantined == {"schema_unknown": 900}
    assert {one.route for one in lake.quarantine()} == {"games"}
    assert result.rows == 2
