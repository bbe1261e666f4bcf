"""Derived tables that tasks merge and write, each task some of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from headgate.config import Delta, PipelineConfig, Registry
from headgate.engine.events import Event, GoldFailed
from headgate.gold import spark_rows
from headgate.gold.declared import Landed
from headgate.gold.derive import GoldDeriver
from headgate.lake.delta_rs import DeltaRsCommitter
from tests.run.conftest import WRAPPER

GAMES = ("chess", "darts", "golf")
Rows = list[tuple[str, int]]


@dataclass
class Games:
    """Landed tables of a few games, and a table derived from each."""

    spark: SparkSession
    lake: Path
    query: str

    def __post_init__(self) -> None:
        self.events: list[Event] = []
        pipeline = PipelineConfig(
            name="games",
            source=Delta(path=str(self.lake / "inbox")),
            registry=Registry(folder=str(self.lake / "schemas")),
            envelope=WRAPPER,
            lake=str(self.lake),
            silver="silver_{route}",
            gold={"gold_{route}": self.query},
        )
        committer = DeltaRsCommitter(str(self.lake))
        listen = self.events.append
        self.deriver = GoldDeriver(self.spark, committer, pipeline, "headgate:games", listen)

    def land(self, **rows: Rows) -> None:
        for game, some in rows.items():
            players, scores = zip(*some, strict=True)
            table = {"player": players, "score": pa.array(scores, pa.int64())}
            write_deltalake(self.lake / f"silver_{game}", pa.table(table), mode="append")
        self.deriver.derive([Landed(f"silver_{game}", game, game) for game in rows])

    def derived(self, game: str) -> Rows:
        rows = DeltaTable(self.lake / f"gold_{game}").to_pyarrow_table().select(["player", "score"])
        return sorted(tuple(row.values()) for row in rows.to_pylist())

    def version(self, game: str) -> int:
        return DeltaTable(self.lake / f"gold_{game}").version()


@pytest.fixture(params=["in tasks", "on the driver"])
def files_are_read(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "in tasks":
            patch.setattr(spark_rows, "_MAX_FILES_HERE", 0)
        yield


@pytest.mark.usefixtures("files_are_read")
def test_groups_without_new_rows_stay(spark: SparkSession, tmp_path: Path) -> None:
    query = "SELECT player, max(score) AS score FROM silver WHERE score > 0 GROUP BY player"
    games = Games(spark, tmp_path, query)
    games.land(chess=[("ann", 1), ("bob", 2)], darts=[("ann", 3)], golf=[("cy", -1)])
    games.land(chess=[("bob", 5), ("cy", 4)], darts=[("ann", -3)], golf=[("cy", -2)])
    assert games.derived("chess") == [("ann", 1), ("bob", 5), ("cy", 4)]
    # No new row of these tables has a group, but they are up to date.
    assert games.derived("darts") == [("ann", 3)]
    assert games.derived("golf") == []
    assert [games.version(game) for game in GAMES] == [1, 1, 1]
    assert not games.deriver.derive([Landed("silver_darts", "darts", "darts")])


@pytest.mark.usefixtures("files_are_read")
def test_a_sum_that_is_too_large_is_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    games = Games(spark, tmp_path, "SELECT player, sum(score) AS score FROM silver GROUP BY player")
    games.land(chess=[("ann", 2**63 - 1)], darts=[("ann", 1)])
    # Spark has an error, or begins again with the least number.
    games.land(chess=[("ann", 1), ("bob", 1)], darts=[("ann", 2)])
    assert games.derived("chess") == [("ann", 2**63 - 1)]
    assert games.derived("darts") == [("ann", 3)]
    (failed,) = (one for one in games.events if isinstance(one, GoldFailed))
    assert "ARITHMETIC_OVERFLOW" in failed.error
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        games.land(darts=[("ann", 3)])
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    assert games.derived("chess") == [("ann", -(2**63)), ("bob", 1)]
    assert games.derived("darts") == [("ann", 6)]


@pytest.mark.usefixtures("files_are_read")
def test_a_query_with_a_limit_sees_one_table_at_a_time(spark: SparkSession, tmp_path: Path) -> None:
    query = "SELECT player, score FROM silver ORDER BY score DESC LIMIT 2"
    games = Games(spark, tmp_path, query)
    games.land(
        chess=[("ann", 1), ("bob", 3), ("cy", 2)], darts=[("ann", 9)], golf=[("bob", 5), ("cy", 6)]
    )
    games.land(chess=[("dee", 4)], golf=[("ann", 1)])
    assert games.derived("chess") == [("bob", 3), ("dee", 4)]
    assert games.derived("darts") == [("ann", 9)]
    assert games.derived("golf") == [("bob", 5), ("cy", 6)]
