"""Grants in a real Hive metastore: made as a stream runs, changed by others, restored, revoked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from pyspark.sql import SparkSession

import headgate
from headgate.catalog.grants import NewGrants, TableGrants
from headgate.catalog.hive import HiveMetastore
from headgate.catalog.recorded import Recorded
from headgate.config import Catalog, Granted, Principal
from headgate.engine.events import CatalogFailed, PrivilegesGranted, TablesRegistered
from headgate.errors import CatalogError
from headgate.inspect.status import GrantsStatus, read_grants, read_status
from headgate.lab.metastore import Metastore
from headgate.lake.ledger import Ledger
from headgate.lake.ledger_entries import CatalogEntry, GrantsEntry
from headgate.lake.ledger_snapshot import LedgerSnapshot
from headgate.run import run_pipeline
from headgate.sources.stop_signal import StopSignal
from tests.catalog.test_hive_metastore import GOLD, ONCE, STREAM, send
from tests.cli.conftest import Headgate
from tests.cli.conftest import headgate as headgate_command
from tests.run.conftest import Told

command = headgate_command

ANALYSTS, LOADER = Principal("analysts", "group"), Principal("loader", "user")
OTHERS = Principal('It\'s `me` "ü"', "user")
SELECT, ALL = Granted(ANALYSTS, "SELECT"), Granted(LOADER, "ALL")
GRANTS = [
    {"to": {"group": "analysts"}, "tables": "gold_*"},
    {"to": {"user": "loader"}, "tables": ["silver_go", "gold_go"], "privileges": "ALL"},
]


@pytest.fixture
def catalog(metastore: Metastore) -> Catalog:
    return Catalog(name=f"games_{uuid4().hex[:8]}", in_=metastore.url)


def declare(catalog: Catalog, folder: Path, grants: Sequence[Any]) -> headgate.Pipeline:
    """Write the pipeline file with these grants, and load it."""
    wrapper = {"message": "wrapper", "route": "game_name"}
    declared = {
        "name": "games",
        "source": {"delta": {"path": "./inbox"}},
        "registry": "./schemas",
        "envelope": {"wrapper": {**wrapper, "schema_id": "schema_id", "payload": "payload"}},
        "lake": "./lake",
        "gold": {"gold_{route}": GOLD},
        "catalog": {"name": catalog.name, "in": catalog.in_},
        "grants": [*grants],
    }
    file = folder / "games.yaml"
    file.write_text(yaml.safe_dump(declared))
    return headgate.load(file)


def granted(spark: SparkSession, catalog: Catalog, table: str) -> set[Granted]:
    with HiveMetastore.open(spark, catalog) as metastore:
        found = metastore.grants(table)
    assert found is not None
    return {*found}


def test_grants_follow_tables_drift_is_shown_and_all_is_revoked(
    spark: SparkSession, catalog: Catalog, tmp_path: Path, command: Headgate
) -> None:
    pipeline = declare(catalog, tmp_path, GRANTS)
    told, stop = Told(), StopSignal()

    def wait_for(table: str) -> None:
        told.wait_for(lambda: any(table in one.tables for one in told.of(PrivilegesGranted)))

    with ThreadPoolExecutor(1) as pool:
        send(pipeline, 1, versions=1)
        run = pool.submit(run_pipeline, pipeline, STREAM, told, stop)
        try:
            wait_for("gold_chess")
            assert granted(spark, catalog, "gold_chess") == {SELECT}
            assert granted(spark, catalog, "silver_chess") == set()
            send(pipeline, 2, versions=1, seed=1)
            wait_for("gold_go")
            assert granted(spark, catalog, "gold_go") == {SELECT, ALL}
            assert granted(spark, catalog, "silver_go") == {ALL}
            # In the same pass in which its table was registered.
            passes = [
                event
                for event in told.events
                if isinstance(event, TablesRegistered | PrivilegesGranted)
            ]
            for registered, made in pairwise(passes):
                if isinstance(made, PrivilegesGranted):
                    assert {*made.tables} <= {*registered.tables}
        finally:
            stop.request()
            run.result(60)
    assert told.of(CatalogFailed) == []
    assert pipeline.plan_grants().is_as_declared
    clean = command("grants", "plan", "games.yaml", "--strict")
    assert (clean.code, clean.err) == (0, "")
    assert "all grants are as declared" in clean.out
    status = read_status(pipeline).grants
    assert status is not None
    assert (status.granted, status.missing, status.obsolete, status.errors) == (4, (), (), {})

    with HiveMetastore.open(spark, catalog) as metastore:
        metastore.revoke("gold_go", ANALYSTS, ["SELECT"])
        metastore.grant("ledger", OTHERS, ["SELECT"])
    pipeline = declare(catalog, tmp_path, GRANTS[:1])
    changed = {one.table: one for one in pipeline.plan_grants().tables if not one.is_as_declared}
    assert changed == {
        "gold_go": TableGrants("gold_go", missing=(SELECT,), obsolete=(ALL,)),
        "ledger": TableGrants("ledger", foreign=(Granted(OTHERS, "SELECT"),)),
        "silver_go": TableGrants("silver_go", obsolete=(ALL,)),
    }
    drift = command("grants", "plan", "games.yaml", "--strict")
    assert drift.code == 1
    assert "1 to grant, 2 to revoke, 1 granted by others [grants-differ]" in drift.err
    assert "  +  SELECT to group:analysts\n  -  ALL to user:loader, no longer declared" in drift.out
    assert '  ~  SELECT to user:It\'s `me` "ü", granted by others' in drift.out

    recorded = command("status", "games.yaml")
    assert "4 privileges, as recorded; --online compares with the catalog" in recorded.out
    for name in ("status", "plan"):
        shown = command(name, "games.yaml", "--online")
        assert (shown.code, shown.err) == (0, "")
        assert "gold_go: + SELECT to group:analysts, not granted; - ALL to user:lo" in shown.out
        assert 'ledger: ~ SELECT to user:It\'s `me` "ü", granted by others' in shown.out

    applied = command("grants", "apply", "games.yaml")
    assert (applied.code, applied.err) == (0, "")
    assert "1 privilege granted, 2 privileges revoked" in applied.out
    assert granted(spark, catalog, "gold_go") == {SELECT}
    assert granted(spark, catalog, "silver_go") == set()
    (foreign,) = [one for one in pipeline.plan_grants().tables if not one.is_as_declared]
    assert foreign.table == "ledger"
    exact = json.loads(command("grants", "apply", "games.yaml", "--exact", "--json").out)
    assert [one["table"] for one in exact["data"]["tables"]] == ["ledger"]
    assert "as in the catalog" in command("status", "games.yaml", "--online").out
    assert "Nothing to do" in command("grants", "apply", "games.yaml").out

    assert (
        "granted nothing to loader" in command("grants", "revoke", "--from", "loader", "--yes").out
    )
    revoked = command("grants", "revoke", "games.yaml", "--from", "analysts", "--yes")
    assert revoked.code == 0
    assert "2 privileges on 2 tables" in revoked.out
    assert "2 privileges revoked" in revoked.out
    assert granted(spark, catalog, "gold_chess") == granted(spark, catalog, "gold_go") == set()
    lacking = read_grants(pipeline)
    assert lacking is not None
    assert (lacking.granted, lacking.missing) == (0, ("gold_chess", "gold_go"))


def test_grants_declared_later_are_made_at_the_start_of_a_run_and_cost_nothing_from_then_on(
    spark: SparkSession, catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = declare(catalog, tmp_path, ())
    send(pipeline, 1, versions=1)
    run_pipeline(pipeline, ONCE)
    pipeline = declare(catalog, tmp_path, GRANTS)
    told = Told()
    run_pipeline(pipeline, ONCE, told)
    assert told.of(PrivilegesGranted) == [PrivilegesGranted(catalog.name, 1, ("gold_chess",))]
    assert granted(spark, catalog, "gold_chess") == {SELECT}
    monkeypatch.setattr(NewGrants, "grant", None)
    send(pipeline, 1, versions=1, seed=2)
    run_pipeline(pipeline, ONCE)


def test_refused_grant_is_reported_recorded_and_made_once_it_is_possible(
    spark: SparkSession, catalog: Catalog, tmp_path: Path, command: Headgate
) -> None:
    readers = {"to": {"role": f"readers_{catalog.name}"}, "tables": "silver_*"}
    pipeline = declare(catalog, tmp_path, [*GRANTS, readers])
    send(pipeline, 1, versions=1)
    first, second, third = Told(), Told(), Told()
    run_pipeline(pipeline, ONCE, first)
    (failed,) = first.of(CatalogFailed)
    assert (failed.subject, failed.code) == (f"{catalog.name}.silver_chess", "grant-refused")
    assert "has no role" in failed.error
    assert granted(spark, catalog, "gold_chess") == {SELECT}
    status = read_grants(pipeline)
    assert status is not None
    assert [*status.errors] == [*status.missing] == ["silver_chess"]
    assert "has no role" in command("status", "games.yaml").out
    refused = command("grants", "apply", "games.yaml")
    assert (refused.code, "refused on 1 table" in refused.out) == (1, True)
    run_pipeline(pipeline, ONCE, second)
    assert len(second.of(CatalogFailed)) == 1
    snapshot = LedgerSnapshot.open_all(pipeline.lake, pipeline.ledger, pipeline.name)
    assert len(snapshot.entries(GrantsEntry, table="silver_chess")) == 1
    with HiveMetastore.open(spark, catalog) as metastore:
        role = metastore._api.Role(f"readers_{catalog.name}", 0, "tests")
        metastore._client.create_role(role)
    run_pipeline(pipeline, ONCE, third)
    assert third.of(CatalogFailed) == []
    assert read_grants(pipeline) == GrantsStatus(2)


def test_entry_that_is_dropped_takes_its_grants_with_it(
    spark: SparkSession, catalog: Catalog, tmp_path: Path, command: Headgate
) -> None:
    pipeline = declare(catalog, tmp_path, GRANTS)
    send(pipeline, 1, versions=1)
    run_pipeline(pipeline, ONCE)
    with HiveMetastore.open(spark, catalog) as metastore:
        location = metastore.location("gold_chess")
        assert location is not None
    assert command("remove", "games.yaml", "--catalog", "--yes").code == 0
    with HiveMetastore.open(spark, catalog) as metastore:
        assert metastore.tables() == set()
        metastore.register("gold_chess", location)
        assert metastore.grants("gold_chess") == frozenset()
        metastore.drop("gold_chess")
    missing = command("grants", "plan", "games.yaml")
    assert missing.code == 1
    assert f"{catalog.name}.gold_chess is not in the catalog [grant-refused]" in missing.err
    # The ledger still has them as granted, but the new entry has none.
    run_pipeline(pipeline, ONCE)
    assert granted(spark, catalog, "gold_chess") == {SELECT}
    assert Recorded.of(pipeline, catalog).grants["gold_chess"] == {SELECT}


def test_same_privilege_by_two_grantors_is_revoked_at_once(
    spark: SparkSession, catalog: Catalog
) -> None:
    with HiveMetastore.open(spark, catalog) as metastore:
        metastore.tables()
        metastore.register("chess", "file:/lake/chess")
        metastore.grant("chess", OTHERS, ["SELECT", "INSERT"])
        (mine, _) = metastore._privileges("chess")
        mine.getGrantInfo().setGrantor("another")
        metastore._client.grant_privileges(metastore._api.PrivilegeBag([mine]))
        assert len(metastore._privileges("chess")) == 3
        metastore.revoke("chess", OTHERS, ["INSERT", "SELECT"])
        assert metastore.grants("chess") == frozenset()


def test_metastore_refuses_what_it_would_otherwise_ignore(
    spark: SparkSession, catalog: Catalog
) -> None:
    with HiveMetastore.open(spark, catalog) as metastore:
        metastore.tables()
        with pytest.raises(CatalogError, match="is not in the catalog"):
            metastore.grant("chess", LOADER, ["ALL"])
        assert metastore.grants("chess") is None


def test_metastore_that_is_down_is_reported_by_the_commands(
    spark: SparkSession, catalog: Catalog, tmp_path: Path, command: Headgate
) -> None:
    pipeline = declare(catalog, tmp_path, GRANTS)
    nothing_yet = command("grants", "plan", "games.yaml", "--strict")
    assert (nothing_yet.code, "no table is registered" in nothing_yet.out) == (0, True)
    send(pipeline, 1, versions=1)
    run_pipeline(pipeline, ONCE)
    down = Catalog(name=catalog.name, in_="thrift://127.0.0.1:1")
    ledger = Ledger(pipeline.lake, pipeline.ledger, pipeline.name)
    ledger.add(0, [CatalogEntry("gold_chess", down.identity)])
    declare(down, tmp_path, GRANTS)
    for words in (["plan"], ["apply"]):
        failed = command("grants", *words, "games.yaml")
        assert (failed.code, "[catalog-unavailable]" in failed.err) == (1, True)
        assert "headgate up --catalog" in failed.err
