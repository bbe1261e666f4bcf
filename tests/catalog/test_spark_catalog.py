"""A catalog of Spark through SQL, and the command that queries it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from headgate.catalog.open import open_catalog
from headgate.catalog.spark_sql import SparkCatalog
from headgate.cli.main import run_command
from headgate.config import Catalog, Principal
from headgate.errors import CatalogError, CatalogUnavailable
from tests.config.test_broken_files import GOOD


@pytest.fixture
def catalog(spark: SparkSession) -> Iterator[Catalog]:
    declared = Catalog(name=f"games_{uuid4().hex[:8]}", in_="spark_catalog")
    yield declared
    spark.sql(f"DROP SCHEMA IF EXISTS `{declared.name}` CASCADE")


@pytest.fixture
def location(tmp_path: Path) -> str:
    folder = tmp_path / "it's a lake" / "chess"
    column = pa.field("n", pa.int64(), metadata={"comment": "A number"})
    write_deltalake(folder, pa.table({"n": [1, 2]}, schema=pa.schema([column])))
    return f"file:{folder}"


def test_tables_are_registered_and_dropped(
    spark: SparkSession, catalog: Catalog, location: str
) -> None:
    with open_catalog(spark, catalog) as opened:
        assert isinstance(opened, SparkCatalog)
        assert opened.tables() == set()
        assert opened.location("chess") is None
        opened.register("chess", location)
        opened.register("1up", location)
        assert opened.tables() == {"chess", "1up"}
        assert opened.location("chess") == location
        (described, *_) = spark.sql(f"DESCRIBE `{catalog.name}`.chess").collect()
        assert described == ("n", "bigint", "A number")
        with pytest.raises(CatalogError, match="TABLE_OR_VIEW_ALREADY_EXISTS"):
            opened.register("chess", location)
        opened.drop("chess")
        assert opened.tables() == {"1up"}
    assert Path(location.removeprefix("file:"), "_delta_log").is_dir()


def test_schema_that_cannot_be_created_is_refused_with_the_reason(spark: SparkSession) -> None:
    catalog = Catalog.model_construct(name="no-such", in_="spark_catalog")
    with (
        open_catalog(spark, catalog) as opened,
        pytest.raises(CatalogError, match="INVALID_SCHEMA_OR_RELATION_NAME"),
    ):
        opened.tables()


def test_unknown_catalog_does_not_answer(spark: SparkSession) -> None:
    catalog = Catalog(name="games", in_="no_such_catalog")
    with (
        open_catalog(spark, catalog) as opened,
        pytest.raises(CatalogUnavailable) as raised,
    ):
        opened.tables()
    assert "spark.sql.catalog.no_such_catalog" in str(raised.value.hint)


def test_catalog_of_spark_itself_has_no_grants(
    spark: SparkSession, catalog: Catalog, location: str
) -> None:
    with open_catalog(spark, catalog) as opened:
        opened.tables()
        opened.register("chess", location)
        attempts: list[Callable[[], object]] = [
            lambda: opened.grants("chess"),
            lambda: opened.grant("chess", Principal("a`b"), ["SELECT"]),
            lambda: opened.revoke("chess", Principal("a`b"), ["ALL PRIVILEGES"]),
        ]
        for attempt in attempts:
            with pytest.raises(CatalogError) as raised:
                attempt()
            assert raised.value.code == "grants-unsupported"
            assert "thrift://" in str(raised.value.hint)


def test_statement_of_headgate_spark_prints_its_rows(
    spark: SparkSession,
    catalog: Catalog,
    location: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with open_catalog(spark, catalog) as opened:
        opened.tables()
        opened.register("chess", location)
    file = tmp_path / "games.yaml"
    file.write_text(f"{GOOD}catalog: {{name: {catalog.name}, in: spark_catalog}}\n")
    table = f"`{catalog.name}`.chess"
    assert run_command(["spark", str(file), "--sql", f"SELECT sum(n) AS n FROM {table}"]) == 0
    assert json.loads(capsys.readouterr().out) == {"n": 3}
    assert run_command(["spark", str(file), "--sql", "SELECT * FROM nowhere"]) == 1
    error = capsys.readouterr().err
    assert "[bad-query]" in error
    assert f"tables are {catalog.name}.TABLE" in error
