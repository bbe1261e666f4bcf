from __future__ import annotations

import pytest

from headgate.cluster.driver import is_submitted
from headgate.engine.session import settings_of

HOST = "spark.driver.host"
_VARIABLES = ("MASTER", "SPARK_REMOTE", "PYSPARK_GATEWAY_PORT", "DATABRICKS_RUNTIME_VERSION")


@pytest.fixture(autouse=True)
def _no_master(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_driver_is_bound_to_this_machine() -> None:
    settings = settings_of("games", {})
    assert settings["spark.master"].startswith("local")
    assert settings[HOST] == settings["spark.driver.bindAddress"] == "127.0.0.1"


def test_executors_of_a_cluster_can_reach_the_driver() -> None:
    settings = settings_of("games", {"spark.master": "spark://main:7077"})
    assert HOST not in settings
    named = settings_of("games", {"spark.master": "yarn", HOST: "driver.example.org"})
    assert named[HOST] == "driver.example.org"


def test_master_of_the_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER", "spark://main:7077")
    assert not {"spark.master", HOST} & settings_of("games", {}).keys()
    monkeypatch.setenv("MASTER", "local[1]")
    assert settings_of("games", {})[HOST] == "127.0.0.1"


def test_driver_of_spark_submit_keeps_what_the_call_has_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    given = {
        "spark.master": "local[2]",
        "spark.driver.memory": "2g",
        "spark.kubernetes.namespace": "here",
        "spark.executor.memory": "4g",
    }
    settings = settings_of("games", given)
    assert settings["spark.executor.memory"] == "4g"
    assert "spark.sql.extensions" in settings
    of_the_call = {"spark.master", "spark.jars", "spark.driver.memory", HOST}
    assert not {*of_the_call, "spark.kubernetes.namespace"} & settings.keys()


def test_session_of_databricks_gets_only_what_a_session_may_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "18.0")
    given = {
        "spark.executor.memory": "4g",
        "spark.hadoop.fs.s3a.endpoint.region": "eu-central-1",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.catalog.other": "some.Catalog",
    }
    settings = settings_of("games", given)
    assert settings["spark.sql.session.timeZone"] == "UTC"
    assert settings["spark.sql.ansi.enabled"] == "true"
    assert settings["spark.databricks.delta.snapshotPartitions"] == "2"
    assert all(key.startswith(("spark.sql.", "spark.databricks.delta.")) for key in settings)
    of_the_cluster = {"spark.sql.extensions", "spark.sql.catalog.spark_catalog"}
    assert not {*of_the_cluster, "spark.sql.catalog.other"} & settings.keys()


def test_databricks_gets_no_pack(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_submitted()
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "18.0")
    assert is_submitted()
