"""Derived tables equal a full recompute of their sources, whatever happened before.

Every case is a game with its own history: batches of rows, columns that are added or change their
types, deleted rows, interrupted derivations, refreshes. All games are tables of one pipeline.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from headgate.config import Delta, PipelineConfig, Registry
from headgate.engine.events import Event, GoldFailed
from headgate.gold import spark_rows
from headgate.gold.declared import Landed
from headgate.gold.derive import GoldDeriver
from headgate.lake.delta_rs import DeltaRsCommitter
from tests.lake.large_tables import merged_as_if
from tests.rounds import rounds
from tests.run.conftest import WRAPPER

ROUNDS = 3
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)

BY_PLAYER = """
SELECT player, count(*) AS sessions, sum(score) AS total, min(seen) AS first_seen,
  max(seen) AS last_seen, avg(level) AS level, max_by(score, seen) AS newest
FROM silver GROUP BY player
"""
BY_PLAYER_IN_DUCKDB = BY_PLAYER.replace("max_by", "arg_max_null")
RECORDS = """
SELECT player, count(*) AS sessions, sum(score) AS total, max(level) AS level, max(seen) AS seen
FROM silver GROUP BY player
"""
BEST = "SELECT player, max(score) AS best FROM silver WHERE score > 70 GROUP BY player"
IN_ALL = "SELECT count(*) AS sessions, count(level) AS levels, max(score) AS best FROM silver"
GOOD = "SELECT player, score FROM silver WHERE score > 50"
MEDIAN = "SELECT player, median(score) AS middle FROM silver GROUP BY player"
BY_GAME = "SELECT route, count(*) AS sessions, sum(score) AS total FROM silver GROUP BY route"
"""These queries mean the same in Spark and in DuckDB."""

UNION_COLUMNS = "route, player, sessions, total"


def pipeline_in(lake: Path) -> PipelineConfig:
    return PipelineConfig(
        name="games",
        source=Delta(path=str(lake / "inbox")),
        registry=Registry(folder=str(lake / "schemas")),
        envelope=WRAPPER,
        lake=str(lake),
        silver="silver_{route}",
        gold={
            "players_{route}": BY_PLAYER,
            "records_{route}": RECORDS,
            "best_{route}": BEST,
            "all_{route}": IN_ALL,
            "good_{route}": GOOD,
            "median_{route}": MEDIAN,
            "by_game": BY_GAME,
            "united": {"from": "players_*", "select": UNION_COLUMNS},
            "everything": {"from": "silver", "select": "route, player, score"},
        },
    )


@dataclass
class Game:
    """A landed table with random changes."""

    lake: Path
    name: str
    random: Random
    columns: dict[str, pa.DataType] = field(
        default_factory=lambda: {"player": pa.string(), "seen": pa.timestamp("us", "UTC")}
    )

    @property
    def path(self) -> Path:
        return self.lake / f"silver_{self.name}"

    @property
    def landed(self) -> Landed:
        return Landed(f"silver_{self.name}", self.name, self.name)

    def evolve(self) -> None:
        """Apply random changes, as may happen between two derivations."""
        chance = self.random.random()
        if chance < 0.2 and "level" not in self.columns:
            self.columns["level"] = pa.int32()
        elif chance < 0.3 and "score" not in self.columns:
            self.columns["score"] = pa.int32()
        elif chance < 0.35 and self.columns.get("score") == pa.int32():
            self._widen("score")
        elif chance < 0.4 and self.path.exists():
            DeltaTable(self.path).delete("player = 'ann'")
        for _ in range(self.random.randint(0, 1 if self.path.exists() else 2)):
            self._land(self.random.randint(1, 6))

    def _land(self, count: int) -> None:
        rows = [self._row() for _ in range(count)]
        schema = pa.schema(list(self.columns.items()))
        write_deltalake(
            self.path,
            pa.Table.from_pylist(rows, schema),
            mode="append",
            schema_mode="merge",
        )

    def _row(self) -> dict[str, Any]:
        return {
            "player": self.random.choice(["ann", "bob", "cy", None]),
            # No two rows are seen at the same time.
            "seen": BEGAN + timedelta(seconds=self.random.randrange(10**7)),
            "score": self.random.choice([None, self.random.randint(0, 100)]),
            "level": self.random.choice([None, self.random.randint(1, 9)]),
        }

    def _widen(self, column: str) -> None:
        self.columns[column] = pa.int64()
        if not self.path.exists():
            return
        rows = DeltaTable(self.path).to_pyarrow_table()
        if column in rows.column_names:
            at = rows.column_names.index(column)
            rows = rows.set_column(at, column, rows[column].cast(pa.int64()))
            write_deltalake(self.path, rows, mode="overwrite", schema_mode="overwrite")

    def rows(self) -> pa.Table:
        """Return all rows, with every column that the declarations use."""
        rows = DeltaTable(self.path).to_pyarrow_table()
        for name in ("score", "level"):
            if name not in rows.column_names:
                rows = rows.append_column(name, pa.nulls(len(rows), pa.int64()))
        route = pa.array([self.name] * len(rows), pa.string())
        return rows.append_column("route", route)


def comparable(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Return rows in a comparable form, without nulls and internal columns."""
    shown = (
        {
            name: round(float(value), 9) if isinstance(value, int | float | Decimal) else str(value)
            for name, value in row.items()
            if value is not None and not name.startswith("_")
        }
        for row in rows
    )
    return sorted(repr(sorted(row.items())) for row in shown)


def derived(lake: Path, table: str) -> list[str]:
    return comparable(DeltaTable(lake / table).to_pyarrow_table().to_pylist())


def recomputed(sql: str, silver: pa.Table) -> list[str]:
    with duckdb.connect() as engine:
        engine.execute("SET TimeZone = 'UTC'")
        engine.register("silver", silver)
        return comparable(engine.sql(sql).arrow().read_all().to_pylist())


@pytest.mark.parametrize("way", ["merged", "merged into many files", "by tasks"])
@rounds(2, 500)
@settings(max_examples=1, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_derived_tables_equal_a_full_recompute(
    spark: SparkSession, tmp_path_factory: Any, cases: int, way: str, seed: int
) -> None:
    lake = tmp_path_factory.mktemp("lake")
    with merged_as_if(way == "merged into many files"), pytest.MonkeyPatch.context() as patch:
        if way == "by tasks":
            patch.setattr(spark_rows, "_MAX_FILES_HERE", 0)
        derive_and_compare(spark, lake, cases, seed)


def derive_and_compare(spark: SparkSession, lake: Path, cases: int, seed: int) -> None:
    random = Random(seed)
    games = [Game(lake, f"g{number:03}", Random(random.random())) for number in range(cases)]
    events: list[Event] = []
    committer = DeltaRsCommitter(str(lake))
    deriver = GoldDeriver(spark, committer, pipeline_in(lake), "headgate:games", events.append)
    for _ in range(ROUNDS):
        for game in games:
            game.evolve()
        landed = [game.landed for game in games if game.path.exists()]
        # Interrupted: only some tables are derived, the others have to catch up.
        deriver.derive([one for one in landed if random.random() < 0.3])
        deriver.refresh(deriver.tables([random.choice(["players_g1*", "united", "by_game"])]))
        if random.random() < 0.3:
            # Another process, which has only the state in the lake.
            committer = DeltaRsCommitter(str(lake))
            deriver = GoldDeriver(
                spark, committer, deriver.pipeline, "headgate:games", events.append
            )
        deriver.derive(landed)
    assert deriver.derive(landed) == []
    assert not [one for one in events if isinstance(one, GoldFailed)]

    silver = {game.name: game.rows() for game in games if game.path.exists()}
    united = []
    for name, rows in silver.items():
        assert derived(lake, f"players_{name}") == recomputed(BY_PLAYER_IN_DUCKDB, rows), name
        assert derived(lake, f"records_{name}") == recomputed(RECORDS, rows), name
        assert derived(lake, f"best_{name}") == recomputed(BEST, rows), name
        assert derived(lake, f"all_{name}") == recomputed(IN_ALL, rows)
        assert derived(lake, f"good_{name}") == recomputed(GOOD, rows)
        assert derived(lake, f"median_{name}") == recomputed(MEDIAN, rows)
        united += recomputed(
            f"SELECT route, player, sessions, total FROM ({BY_PLAYER_IN_DUCKDB}), "
            f"(SELECT any_value(route) AS route FROM silver)",
            rows,
        )
    everything = pa.concat_tables(silver.values(), promote_options="permissive")
    assert derived(lake, "by_game") == recomputed(BY_GAME, everything)
    assert derived(lake, "united") == sorted(united)
    assert derived(lake, "everything") == recomputed(
        "SELECT route, player, score FROM silver", everything
    )
