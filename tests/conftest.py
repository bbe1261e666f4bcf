"""What all tests share: one Spark session, broker, registry and database for the whole run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from headgate.engine.session import LOGGING
from headgate.lab.database import Database
from headgate.lab.services import Services, down, up, up_database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The same cases in every run, so that a change is judged by itself; `make search` looks for others.
settings.register_profile("repeat", derandomize=True)
settings.register_profile("search", derandomize=False)
settings.load_profile("repeat")


# Java's second compiler pays off after minutes; the Spark sessions of tests are younger.
os.environ.setdefault(
    "SPARK_SUBMIT_OPTS", f"-XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile={LOGGING}"
)

SERVERS = (
    "tests/cli/test_demo.py",
    "tests/faults/test_broker_faults.py",
    "tests/faults/test_full_disk.py",
    "tests/kills/test_kills_with_spark.py",
    "tests/lab/pizza/test_pizza_on_kafka.py",
    "tests/lab/shop/test_database.py",
    "tests/lab/test_database.py",
    "tests/lab/test_services.py",
    "tests/run/",
    "tests/soak/",
    "tests/test_docs.py",
)
"""Tests that start Spark or a server. They run one after the other, beside all other tests."""


class _Scheduler(LoadScopeScheduling):  # type: ignore[misc]
    """Gives all tests of servers to one worker, and the others by file to whichever is free."""

    def _split_scope(self, nodeid: str) -> str:
        return "servers" if nodeid.startswith(SERVERS) else nodeid.partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    return _Scheduler(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if {"spark", "services", "database"} & {*getattr(item, "fixturenames", ())}:
            assert item.nodeid.startswith(SERVERS), f"{item.nodeid} needs a server"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from headgate.engine.session import spark_session

    session = spark_session("tests")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    folder = tmp_path_factory.mktemp("services")
    yield up(folder)
    down(folder)


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    folder = tmp_path_factory.mktemp("database")
    yield up_database(folder)
    down(folder)
