"""Grants through SQL: the statements sent, and answers as Databricks documents them.

Spark itself has no grants, so that the session is a stub. What Spark answers instead is in
test_spark_catalog.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Row, SparkSession

from headgate.catalog.open import open_catalog
from headgate.catalog.spark_sql import SparkCatalog
from headgate.config import Catalog, Granted, Principal
from headgate.errors import CatalogError, CatalogUnavailable

CATALOG = Catalog(name="games", in_="main")
CHESS = "`main`.`games`.`silver_chess`"
HOSTILE = Principal("a`; DROP TABLE x; -- 'b' \"c\"")


@dataclass
class Session:
    """A stub of a session: answers by statement, and the statements that it got."""

    answers: dict[str, Any] = field(default_factory=dict)
    statements: list[str] = field(default_factory=list)

    def sql(self, statement: str) -> Session:
        self.statements.append(statement)
        answer = self.answers.get(statement, [])
        if isinstance(answer, Exception):
            raise answer
        self.rows = answer
        return self

    def collect(self) -> list[Row]:
        return cast(list[Row], self.rows)


def opened(session: Session) -> SparkCatalog:
    with open_catalog(cast(SparkSession, session), CATALOG) as catalog:
        assert isinstance(catalog, SparkCatalog)
        return catalog


@pytest.mark.parametrize(
    "columns",
    [
        ("principal", "actionType", "objectType", "objectKey"),
        ("Principal", "ActionType", "ObjectType", "ObjectKey"),
    ],
)
def test_grants_are_those_of_the_table_itself(columns: tuple[str, ...]) -> None:
    listed = [
        ("analysts", "SELECT", "TABLE", "main.games.silver_chess"),
        ("jobs", "ALL PRIVILEGES", "TABLE", "main.games.silver_chess"),
        ("me@example.org", "OWN", "TABLE", "main.games.silver_chess"),
        ("analysts", "MODIFY", "SCHEMA", "main.games"),
        ("analysts", "USE CATALOG", "CATALOG", "main"),
    ]
    rows = [Row(**dict(zip(columns, values, strict=True))) for values in listed]
    session = Session({f"SHOW GRANTS ON TABLE {CHESS}": rows})
    select = Granted(Principal("analysts"), "SELECT")
    everything = Granted(Principal("jobs"), "ALL PRIVILEGES")
    assert opened(session).grants("silver_chess") == frozenset({select, everything})


def test_statements_quote_every_name() -> None:
    session = Session()
    catalog = opened(session)
    catalog.grant("silver_chess", Principal("analysts"), ["SELECT", "ALL PRIVILEGES"])
    catalog.revoke("silver_chess", HOSTILE, ["MODIFY"])
    assert session.statements == [
        f"GRANT SELECT, ALL PRIVILEGES ON TABLE {CHESS} TO `analysts`",
        f"REVOKE MODIFY ON TABLE {CHESS} FROM `a``; DROP TABLE x; -- 'b' \"c\"`",
    ]
    with pytest.raises(CatalogError, match="is not a privilege"):
        catalog.revoke("silver_chess", HOSTILE, ["SELECT ON TABLE x TO y; --"])
    assert len(session.statements) == 2


def test_refusal_has_the_reason_of_the_catalog() -> None:
    error = AnalysisException("[PRINCIPAL_DOES_NOT_EXIST] Could not find principal\nmore")
    session = Session({f"GRANT SELECT ON TABLE {CHESS} TO `nosuch`": error})
    with pytest.raises(CatalogError) as raised:
        opened(session).grant("silver_chess", Principal("nosuch"), ["SELECT"])
    assert raised.value.code == "grant-refused"
    assert raised.value.message == "[PRINCIPAL_DOES_NOT_EXIST] Could not find principal"


def test_table_that_does_not_exist_has_no_grants() -> None:
    error = AnalysisException("[TABLE_OR_VIEW_NOT_FOUND] The table cannot be found")
    error._errorClass = "TABLE_OR_VIEW_NOT_FOUND"
    session = Session({f"SHOW GRANTS ON TABLE {CHESS}": error})
    assert opened(session).grants("silver_chess") is None


def test_catalog_that_does_not_answer_at_all_is_unavailable() -> None:
    down = AnalysisException("connection refused")
    session = Session(
        {f"SHOW GRANTS ON TABLE {CHESS}": down, "DESCRIBE SCHEMA `main`.`games`": down}
    )
    with pytest.raises(CatalogUnavailable):
        opened(session).grants("silver_chess")


def test_spark_without_the_statements_has_no_grants() -> None:
    session = Session({f"SHOW GRANTS ON TABLE {CHESS}": ParseException("syntax error")})
    with pytest.raises(CatalogError) as raised:
        opened(session).grants("silver_chess")
    assert raised.value.code == "grants-unsupported"
    assert "DATABRICKS_HOST" in str(raised.value.hint)
