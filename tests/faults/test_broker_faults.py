"""A broker and a registry behind a proxy with faults: a run lands everything, or ends in time."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from headgate.config import Duration, Kafka, PipelineConfig, Registry
from headgate.engine.events import Ended
from headgate.engine.runner import RunOptions
from headgate.errors import CODES, HeadgateError
from headgate.lab.broker import broker_answers, start_broker
from headgate.lab.destination import KafkaDestination
from headgate.lab.games import GamesPlan, simulate_games
from headgate.lab.process import choose_port, wait_until_ready
from headgate.lab.registry import registry_url
from headgate.lab.services import Services
from headgate.registry.open import open_registry
from headgate.run import run_pipeline
from tests.faults.proxy import HEALTHY, HOST, Fault, Proxy, proxy_to
from tests.run.conftest import WRAPPER, places

RECORDS = 400
BOUND = 120
"""Seconds until a run must have ended, whatever its servers do."""

IMPATIENT = {
    "kafka.request.timeout.ms": "3000",
    "kafka.default.api.timeout.ms": "6000",
    "kafka.socket.connection.setup.timeout.ms": "2000",
    "kafkaConsumer.pollTimeoutMs": "6000",
    "fetchOffset.numRetries": "2",
    "fetchOffset.retryIntervalMs": "100",
}
"""Kafka's own timeouts are minutes."""

FAULTS = (
    Fault("slow", seconds=0.3),
    Fault("reset", after=1000),
    Fault("reset"),
    Fault("truncated", after=2000),
    Fault("truncated"),
    Fault("garbage", after=1000),
    Fault("silent", after=1000),
    Fault("silent"),
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """A broker that all clients reach through a proxy."""
    port = choose_port("broker", requested=None)
    controller = choose_port("controller", requested=None, taken={port})
    with proxy_to(port) as proxy:
        folder = tmp_path_factory.mktemp("broker")
        process = start_broker(folder, port, controller, advertised_port=proxy.port)
        wait_until_ready(process, lambda: broker_answers(port))
        yield proxy
        process.stop()


@pytest.fixture
def registry(services: Services) -> Iterator[Proxy]:
    with proxy_to(services.registry_port) as proxy:
        yield proxy


class Landing:
    """A pipeline with both servers behind proxies, and records that wait to be landed."""

    def __init__(self, broker: Proxy, registry: Proxy, folder: Path) -> None:
        self.proxies = broker, registry
        servers, topic = f"{HOST}:{broker.port}", f"games-{uuid4().hex[:8]}"
        self.pipeline = PipelineConfig(
            name="games",
            source=Kafka(servers=servers, topics=[topic], batch=100, options=IMPATIENT),
            registry=Registry(url=registry_url(registry.port), timeout=Duration(seconds=3)),
            envelope=WRAPPER,
            lake=str(folder / "lake"),
        )
        plan = GamesPlan(tables=3, versions=2, records=RECORDS, bad_share=0.05)
        with closing(open_registry(self.pipeline.schema_registry)) as opened:
            *_, sent = simulate_games(plan, opened, KafkaDestination(servers, topic, 2))
        self.bad = sent.bad.total()

    def run(self) -> Ended | BaseException:
        """Run in time, and return how it ended."""
        ended: list[Ended | BaseException] = []

        def run() -> None:
            try:
                ended.append(run_pipeline(self.pipeline, RunOptions(once=True)))
            except BaseException as error:
                ended.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(BOUND)
        assert ended, "the run hangs"
        return ended[0]

    def heal(self) -> None:
        for proxy in self.proxies:
            proxy.fault = HEALTHY

    def assert_nothing_twice(self) -> None:
        found = places(self.pipeline.lake) + places(self.pipeline.lake, "quarantine")
        assert set(found.values()) <= {1}

    def assert_complete(self) -> None:
        silver, quarantine = places(self.pipeline.lake), places(self.pipeline.lake, "quarantine")
        assert (silver + quarantine).total() == RECORDS
        assert set((silver + quarantine).values()) == {1}
        # No good record is there.
        assert quarantine.total() == self.bad


@pytest.mark.soak
@pytest.mark.parametrize("cases", [40])
def test_run_with_faults_lands_everything_or_ends_with_an_error(
    spark: SparkSession, broker: Proxy, registry: Proxy, tmp_path: Path, cases: int
) -> None:
    chance = random.Random(11)
    for case in range(cases):
        landing = Landing(broker, registry, tmp_path / str(case))
        victim = landing.proxies[case % 2]
        fault = chance.choice(FAULTS)
        stop = threading.Event()
        faults = threading.Thread(target=_come_and_go, args=(victim, fault, stop, chance))
        faults.start()
        began = time.monotonic()
        try:
            ended = landing.run()
        finally:
            stop.set()
            faults.join()
            landing.heal()
        what = "broker" if victim is broker else "registry"
        print(f"{what} {fault}: {ended!r} in {time.monotonic() - began:.0f} s", flush=True)
        landing.assert_nothing_twice()
        if isinstance(ended, BaseException):
            assert isinstance(ended, HeadgateError)
            assert ended.code in CODES
            assert ended.hint
            assert "error occurred while calling" not in ended.message
            last = landing.run()
            assert isinstance(last, Ended), last
        landing.assert_complete()


def _come_and_go(proxy: Proxy, fault: Fault, stop: threading.Event, chance: random.Random) -> None:
    """Apply a fault for seconds at a time, or for good."""
    if chance.random() < 0.3:
        proxy.fault = fault
        return
    while not stop.wait(chance.uniform(0.2, 2)):
        proxy.fault = fault
        stop.wait(chance.uniform(0.5, 3))
        proxy.fault = HEALTHY
