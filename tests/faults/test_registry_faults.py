"""A registry that is slow, silent or answers with garbage: batches wait, good records land."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from headgate.config import Duration, Registry
from headgate.errors import RegistryUnavailable
from tests.engine.games import PLAIN, UNKNOWN, WIDER, GamesLake, record
from tests.faults.proxy import HEALTHY, Fault, Proxy, proxy_to
from tests.registry.fake_registry import fake_registry, folder_responses
from tests.rounds import some

PATIENCE = 2
BOUND = PATIENCE + 6
"""Seconds until a run has ended, with some for a slow machine."""

FAULTS = [
    Fault("silent"),
    Fault("reset"),
    Fault("reset", after=40),
    Fault("truncated"),
    Fault("truncated", after=150),
    Fault("garbage"),
    Fault("garbage", after=150),
]
RECORDS = [record("a", 1, PLAIN), record("b", 2, WIDER), record("a", 3, UNKNOWN), b"\xff"]


class Landing:
    """A lake whose registry is behind a proxy."""

    def __init__(self, folder: Path, proxy: Proxy) -> None:
        self.proxy = proxy
        self.lake = GamesLake(folder)
        registry = Registry(
            url=f"http://127.0.0.1:{proxy.port}", timeout=Duration(seconds=PATIENCE)
        )
        self.lake.declare(registry=registry)

    def assert_landed_once(self) -> None:
        assert self.lake.offsets() == {"quarantine": [2, 3], "silver_a": [0], "silver_b": [1]}
        assert [row["reason"] for row in self.lake.rows("quarantine")] == [
            "schema_unknown",
            "envelope_undecodable",
        ]


@pytest.fixture
def landing(tmp_path: Path) -> Iterator[Landing]:
    with fake_registry(folder_responses(GamesLake(tmp_path).registry)) as registry:
        port = urlsplit(registry.url).port
        assert port is not None
        with proxy_to(port) as proxy:
            yield Landing(tmp_path, proxy)


@pytest.mark.parametrize("fault", some(FAULTS, *FAULTS[::3]), ids=str)
def test_registry_that_does_not_answer_stops_the_run_until_it_does(
    fault: Fault, landing: Landing
) -> None:
    landing.proxy.fault = fault
    began = time.monotonic()
    with pytest.raises(RegistryUnavailable) as failed:
        landing.lake.land(RECORDS)
    assert time.monotonic() - began < BOUND
    assert failed.value.code == "registry-unavailable"
    assert failed.value.hint
    assert landing.proxy.faults
    assert landing.lake.offsets() == {}
    landing.proxy.fault = HEALTHY
    landing.lake.run()
    landing.assert_landed_once()


@pytest.mark.parametrize("fault", [Fault("reset"), Fault("garbage"), Fault("slow", 0.2)], ids=str)
def test_registry_that_recovers_in_time_is_waited_for(fault: Fault, landing: Landing) -> None:
    landing.proxy.fault = fault
    healing = threading.Timer(1.0, setattr, (landing.proxy, "fault", HEALTHY))
    healing.start()
    landing.lake.land(RECORDS)
    healing.join()
    assert landing.proxy.faults
    landing.assert_landed_once()
