"""What all tests share: one Spark session, broker, registry and database for the whole run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from headgate.config.storage import declare_storage
from headgate.engine.session import LOGGING
from headgate.errors import SetupError
from headgate.lab.database import Database
from headgate.lab.metastore import Metastore
from headgate.lab.object_store import BUCKET, ObjectStore
from headgate.lab.services import Services, down, up, up_catalog, up_database, up_storage
from tests.storage.simulated import simulated_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The same cases in every run, so that a change is judged by itself; `make search` looks for others.
settings.register_profile("repeat", derandomize=True, deadline=None, max_examples=20)
settings.register_profile("search", derandomize=False, deadline=None)
settings.load_profile("repeat")


# Java's second compiler pays off after minutes; the Spark sessions of tests are younger.
os.environ.setdefault(
    "SPARK_SUBMIT_OPTS",
    f"-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -Dlog4j2.configurationFile={LOGGING}",
)

# Threads that train a model would wait for each other: the workers use all cores already.
os.environ.setdefault("OMP_NUM_THREADS", "1")

INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Queries over so few rows are over before compiled code pays off."""

SIMULATED = "SIMULATED_STORAGE"
"""Environment variable that has tests use the simulated object store."""

SESSION = (
    "tests/catalog/test_hive_grants.py",
    "tests/catalog/test_hive_metastore.py",
    "tests/catalog/test_spark_catalog.py",
    "tests/faults/test_broker_faults.py",
    "tests/faults/test_full_disk.py",
    "tests/features/",
    "tests/lab/pizza/test_pizza_on_kafka.py",
    "tests/run/",
)
"""Tests that share a Spark session, a broker and a registry."""

DEPLOYMENT = ("tests/airflow/", "tests/cluster/", "tests/security/")
"""Tests that start Airflow, a cluster, or a broker with logins, with Spark beside them."""

PROCESSES = (
    "tests/cli/test_demo.py",
    "tests/interleave/test_with_spark.py",
    "tests/kills/test_kills_with_spark.py",
    "tests/lab/shop/test_database.py",
    "tests/lab/test_database.py",
    "tests/lab/test_services.py",
    "tests/soak/",
    "tests/storage/",
    "tests/test_docs.py",
    "tests/workflow/test_databricks_runtime.py",
)
"""Other tests that start Spark or a server, most of them in processes of their own."""

_WITH_SERVERS = SESSION + DEPLOYMENT + PROCESSES

_LONG = (
    "tests/engine/test_maintain.py",
    "tests/kills/",
    "tests/workflow/test_databricks_install.py",
)
"""Files that would keep one worker busy at the end while the other has nothing left."""


class _Scheduler(LoadScopeScheduling):  # type: ignore[misc]
    """Gives each kind of tests with servers to one worker, and the others by file."""

    def _split_scope(self, nodeid: str) -> str:
        scopes = {"session": SESSION, "deployment": DEPLOYMENT, "processes": PROCESSES}
        found = (name for name, places in scopes.items() if nodeid.startswith(places))
        return next(found, nodeid.partition("::")[0])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    return _Scheduler(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if {"spark", "services", "database", "storage", "metastore", "airflow"} & {
            *getattr(item, "fixturenames", ())
        }:
            assert item.nodeid.startswith(_WITH_SERVERS), f"{item.nodeid} needs a server"
    # They take longest, so they start first.
    items.sort(
        key=lambda item: (
            not item.nodeid.startswith(_WITH_SERVERS),
            not item.nodeid.startswith(_LONG),
        )
    )


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from headgate.engine.session import spark_session

    session = spark_session("tests", INTERPRETED)
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


@pytest.fixture(scope="session")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """A real store, or a simulated one where the real one cannot be built."""
    folder = tmp_path_factory.mktemp("storage")
    try:
        store = None if SIMULATED in os.environ else up_storage(folder)
    except SetupError as error:
        if error.code != "object-store-missing":
            raise
        store = None
    if store is None:
        with simulated_store(folder) as simulated:
            yield simulated
        return
    yield store
    down(folder)


@pytest.fixture(scope="session")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metastore]:
    folder = tmp_path_factory.mktemp("metastore")
    yield up_catalog(folder)
    down(folder)


@pytest.fixture
def new_lake(storage: ObjectStore) -> Callable[[], str]:
    """Return a function that returns the URL of a new folder in the object store."""

    def new() -> str:
        url = f"s3://{BUCKET}/{uuid4().hex}"
        declare_storage(storage.settings, url)
        return url

    return new
