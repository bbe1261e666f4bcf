"""Five hundred hostile records among fifty thousand: the good ones land, the others are kept."""

from __future__ import annotations

import resource
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pyarrow.compute as pc
from deltalake import DeltaTable

from headgate.testing.lake import stage_in_process
from tests.engine.games import GamesLake, extent, records

from .hostile import AVRO, EVENT, LEGACY, good_avro, good_protobuf, hostile, wrapped

RECORDS, HOSTILE = 50_000, 500
MOST_MEMORY = 1_500 << 20


def land_all(folder: Path) -> int:
    """Land them in a process of its own; returns the most memory that it took."""
    lake = GamesLake(folder)
    texts = {"protobuf": EVENT, "legacy": LEGACY, "avro": AVRO}
    ids = {name: lake.registry.register(name, text) for name, text in texts.items()}
    bad = list(hostile(ids, HOSTILE))
    values = []
    for number in range(RECORDS):
        if number % (RECORDS // HOSTILE) == 50:
            values.append(bad[number // (RECORDS // HOSTILE)])
        elif number % 2:
            values.append(wrapped("avro", ids["avro"], good_avro(number)))
        else:
            values.append(wrapped("protobuf", ids["protobuf"], good_protobuf(number)))
    lander = lake.start()
    for batch, start in enumerate(range(0, RECORDS, 10_000)):
        part = records(values[start : start + 10_000], start)
        lander.land(extent(batch), stage_in_process(part[:5_000], part[5_000:]))
    quarantine = DeltaTable(lake.path / "quarantine").to_pyarrow_table()
    kept = dict(
        zip(*(quarantine.column(name).to_pylist() for name in ("_offset", "value")), strict=True)
    )
    assert kept == {50 + 100 * place: value for place, value in enumerate(bad)}
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def test_hostile_records_do_no_harm(tmp_path: Path) -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        assert process.submit(land_all, tmp_path).result() < MOST_MEMORY
    landed = [
        offset
        for route in ("protobuf", "avro")
        for offset in DeltaTable(tmp_path / "lake" / f"silver_{route}")
        .to_pyarrow_table(columns=["_offset"])
        .column(0)
        .to_pylist()
    ]
    assert sorted(landed) == [number for number in range(RECORDS) if number % 100 != 50]
    numbers = DeltaTable(tmp_path / "lake" / "silver_avro").to_pyarrow_table(
        columns=["n", "_offset"]
    )
    assert pc.all(pc.equal(numbers.column("n"), numbers.column("_offset"))).as_py()
