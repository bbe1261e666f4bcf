"""What all tests share: one Spark session, broker, registry and database for the whole run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from headgate.lab.database import Database
from headgate.lab.services import Services, down, up, up_database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The same cases in every run, so that a change is judged by itself; `make search` looks for others.
settings.register_profile("repeat", derandomize=True)
settings.register_profile("search", derandomize=False)
settings.load_profile("repeat")


SERVERS = pytest.mark.xdist_group("servers")
"""Marks tests that start Spark or a server: one after the other, beside all other tests."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests of servers, which take longest."""
    for item in items:
        if {"spark", "services", "database"} & {*getattr(item, "fixturenames", ())}:
            item.add_marker(SERVERS)
    items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)


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
