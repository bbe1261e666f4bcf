"""Grants of Unity Catalog through its API, against a server that speaks it as documented."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.catalog import databricks, open
from headgate.catalog.databricks import UnityGrants, uses_databricks_api
from headgate.config import Catalog, Granted, Principal
from headgate.errors import CatalogError, CatalogUnavailable, SetupError
from headgate.lake.ledger import Ledger
from headgate.lake.ledger_entries import CatalogEntry
from tests.catalog.unity_server import Unity, unity_server
from tests.cli.conftest import Headgate
from tests.cli.conftest import headgate as headgate
from tests.inspect.small_lake import SmallLake

CATALOG = Catalog(name="games", in_="main")
CHESS, GO = "main.games.silver_chess", "main.games.silver_go"
ANALYSTS, HOSTILE = Principal("analysts"), Principal("o'\"`\\ /?#%ü")


@pytest.fixture(scope="module")
def server() -> Iterator[Unity]:
    with unity_server() as unity:
        yield unity


@pytest.fixture
def unity(server: Unity, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Unity:
    """A workspace that the environment configures, with two tables and no grants."""
    for name in ("DATABRICKS_RUNTIME_VERSION", "DATABRICKS_CONFIG_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DATABRICKS_HOST", server.url)
    monkeypatch.setenv("DATABRICKS_TOKEN", "token")
    monkeypatch.setenv("DATABRICKS_CONFIG_FILE", str(tmp_path / "none"))
    server.tables = {CHESS: {}, GO: {}}
    server.unknown, server.fails_with, server.requests = set(), None, []
    return server


def test_privileges_are_granted_listed_and_revoked(unity: Unity) -> None:
    with UnityGrants.open(CATALOG) as grants:
        assert grants.grants("silver_chess") == frozenset()
        grants.grant("silver_chess", ANALYSTS, ["SELECT", "ALL PRIVILEGES"])
        grants.grant("silver_chess", HOSTILE, ["MODIFY"])
        held = [Granted(ANALYSTS, "SELECT"), Granted(ANALYSTS, "ALL PRIVILEGES")]
        assert grants.grants("silver_chess") == frozenset({*held, Granted(HOSTILE, "MODIFY")})
        grants.revoke("silver_chess", ANALYSTS, ["ALL PRIVILEGES"])
    added = {"principal": "analysts", "add": ["SELECT", "ALL_PRIVILEGES"]}
    hostile = {"principal": HOSTILE.name, "add": ["MODIFY"]}
    removed = {"principal": "analysts", "remove": ["ALL_PRIVILEGES"]}
    table = f"TABLE/{CHESS}"
    assert unity.requests == [
        ("GET", table, {"max_results": ["0"]}),
        ("PATCH", table, {"changes": [added]}),
        ("PATCH", table, {"changes": [hostile]}),
        ("GET", table, {"max_results": ["0"]}),
        ("GET", table, {"max_results": ["0"], "page_token": ["1"]}),
        ("PATCH", table, {"changes": [removed]}),
    ]
    assert unity.tokens == {"Bearer token"}
    assert unity.tables[CHESS] == {"analysts": ["SELECT"], HOSTILE.name: ["MODIFY"]}


def test_refusals_have_the_reason_of_the_server(unity: Unity) -> None:
    unity.unknown = {"nosuch"}
    with UnityGrants.open(CATALOG) as grants:
        with pytest.raises(CatalogError, match="Could not find principal") as raised:
            grants.grant("silver_chess", Principal("nosuch"), ["SELECT"])
        assert raised.value.code == "grant-refused"
        assert grants.grants("silver_poker") is None
        with pytest.raises(CatalogError, match="silver_poker' does not exist"):
            grants.grant("silver_poker", ANALYSTS, ["SELECT"])


@pytest.mark.parametrize(
    "failure", [(500, "INTERNAL_ERROR"), (401, "UNAUTHENTICATED"), (504, "DEADLINE_EXCEEDED")]
)
def test_failing_server_is_unavailable(unity: Unity, failure: tuple[int, str]) -> None:
    unity.fails_with = failure
    with UnityGrants.open(CATALOG) as grants, pytest.raises(CatalogUnavailable) as raised:
        grants.grants("silver_chess")
    assert "DATABRICKS_TOKEN" in str(raised.value.hint)


def test_server_that_is_down_is_unavailable(unity: Unity, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABRICKS_HOST", "http://127.0.0.1:1")
    monkeypatch.setattr(databricks, "_RETRY_SECONDS", 1)
    with UnityGrants.open(CATALOG) as grants, pytest.raises(CatalogUnavailable):
        grants.grants("silver_chess")


def test_workspace_without_credentials_is_unavailable(
    unity: Unity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DATABRICKS_TOKEN")
    monkeypatch.setenv("DATABRICKS_AUTH_TYPE", "pat")
    with pytest.raises(CatalogUnavailable) as raised, UnityGrants.open(CATALOG):
        pass
    assert "DATABRICKS_TOKEN" in str(raised.value.hint)


def test_missing_package_names_the_extra(unity: Unity, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "databricks.sdk", None)
    with pytest.raises(SetupError) as raised, UnityGrants.open(CATALOG):
        pass
    assert raised.value.code == "extra-missing"
    assert "headgate[databricks]" in str(raised.value.hint)


@pytest.mark.parametrize(
    ("catalog", "environment", "expected"),
    [
        ("main", {"DATABRICKS_HOST": "https://x"}, True),
        ("main", {"DATABRICKS_CONFIG_PROFILE": "work"}, True),
        ("main", {}, False),
        ("main", {"DATABRICKS_HOST": "https://x", "DATABRICKS_RUNTIME_VERSION": "18.0"}, False),
        ("spark_catalog", {"DATABRICKS_HOST": "https://x"}, False),
        ("thrift://host:9083", {"DATABRICKS_HOST": "https://x"}, False),
    ],
)
def test_api_is_used_from_outside_of_databricks(
    catalog: str, environment: dict[str, str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DATABRICKS_HOST", "DATABRICKS_CONFIG_PROFILE", "DATABRICKS_RUNTIME_VERSION"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert uses_databricks_api(Catalog(name="games", in_=catalog)) is expected


def test_commands_need_no_spark(
    unity: Unity, headgate: Headgate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open, "open_catalog", None)
    lake = SmallLake(tmp_path)
    lake.register(2, versions=[1])
    lake.land(50, bad_share=0)
    lake.file.write_text(
        f"{lake.file.read_text()}catalog: {{name: games, in: main}}\n"
        "grants: [{to: analysts, tables: silver_*, privileges: [SELECT, MODIFY]}]\n"
    )
    ledger = Ledger(lake.pipeline.lake, "ledger", "games")
    ledger.add(0, [CatalogEntry(one, "main.games") for one in ("silver_chess", "silver_go")])
    unity.tables[GO] = {"others": ["SELECT"]}
    planned = headgate("grants", "plan")
    assert "2 tables in main.games: 4 to grant, 1 granted by others" in planned.out
    assert headgate("grants", "apply", "--exact").code == 0
    assert unity.tables == {
        CHESS: {"analysts": ["MODIFY", "SELECT"]},
        GO: {"others": [], "analysts": ["MODIFY", "SELECT"]},
    }
    assert headgate("grants", "plan", "--strict").code == 0
    assert headgate("grants", "revoke", "--yes").code == 0
    assert not any(some for table in unity.tables.values() for some in table.values())
