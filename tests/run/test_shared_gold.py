"""Derived tables are what their queries return, whatever others do to them and their sources."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake import Field as DeltaField
from deltalake.schema import PrimitiveType
from pyspark.sql import SparkSession

from headgate.config import Delta, PipelineConfig, Registry
from headgate.engine.events import Event, GoldFailed, TableRebuilt
from headgate.gold.declared import Landed
from headgate.gold.derive import GoldDeriver
from headgate.lake.delta_rs import DeltaRsCommitter
from tests.run.conftest import WRAPPER

GAMES = ("chess", "darts")
GOLD: dict[str, Any] = {
    "groups_{route}": "SELECT player, sum(score) AS score FROM silver GROUP BY player",
    "rows_{route}": "SELECT player, score FROM silver",
    "players_{route}": "SELECT count(DISTINCT player) AS players FROM silver",
    "all_groups": "SELECT player, sum(score) AS score FROM silver GROUP BY player",
    "all_rows": "SELECT route, player, score FROM silver",
    "united": {"from": "groups_*", "select": "route, player, score"},
}


@dataclass
class Games:
    """Landed tables, derived tables, and everybody who writes to them."""

    spark: SparkSession
    lake: Path
    random: Random
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Start another run, which knows only what the ledger has."""
        pipeline = PipelineConfig(
            name="games",
            source=Delta(path=str(self.lake / "inbox")),
            registry=Registry(folder=str(self.lake / "schemas")),
            envelope=WRAPPER,
            lake=str(self.lake),
            silver="silver_{route}",
            gold=GOLD,
        )
        committer = DeltaRsCommitter(str(self.lake))
        self.deriver = GoldDeriver(
            self.spark, committer, pipeline, "headgate:games", self.events.append
        )
        self.deriver.known |= {one.table: one for one in self.landed}

    @property
    def landed(self) -> list[Landed]:
        return [Landed(f"silver_{game}", game, game) for game in GAMES]

    def land(self, game: str) -> None:
        players = [self.random.choice("abc") for _ in range(2)]
        rows = {"player": players, "score": pa.array([self.random.randint(1, 9)] * 2, pa.int64())}
        write_deltalake(self.lake / f"silver_{game}", pa.table(rows), mode="append")

    def create_again(self, game: str) -> None:
        """Create a table again that has as many versions as the one before, or more."""
        versions = DeltaTable(self.lake / f"silver_{game}").version() + self.random.randint(1, 3)
        shutil.rmtree(self.lake / f"silver_{game}")
        for _ in range(versions):
            self.land(game)

    def meddle(self, table: str) -> None:
        """Do what others do to a table."""
        opened = DeltaTable(self.lake / table)
        match self.random.choice(("restore", "delete", "compact", "add a column")):
            case "restore" if opened.version():
                opened.restore(self.random.randrange(opened.version()))
            case "delete":
                opened.delete("players > 0" if table.startswith("players") else "player = 'a'")
            case "compact":
                opened.optimize.compact()
            case "add a column" if "theirs" not in pa.schema(opened.schema()).names:
                opened.alter.add_columns([DeltaField("theirs", PrimitiveType("string"))])

    def derive(self) -> None:
        entries = self.deriver.derive(self.landed)
        assert not [entry for entry in entries if entry.error], entries
        assert not [event for event in self.events if isinstance(event, GoldFailed)]

    def rows(self, table: str, *columns: str) -> Counter[tuple[Any, ...]]:
        found = DeltaTable(self.lake / table).to_pyarrow_table().select(columns)
        return Counter(tuple(row.values()) for row in found.to_pylist())

    def assert_derived(self) -> None:
        united: Counter[tuple[Any, ...]] = Counter()
        every: Counter[tuple[Any, ...]] = Counter()
        for game in GAMES:
            landed = self.rows(f"silver_{game}", "player", "score")
            assert self.rows(f"rows_{game}", "player", "score") == landed
            groups = sums(landed)
            assert self.rows(f"groups_{game}", "player", "score") == Counter(groups.items())
            assert self.rows(f"players_{game}", "players") == Counter([(len(groups),)])
            united += Counter((game, *group) for group in groups.items())
            every += Counter({(game, *row): count for row, count in landed.items()})
        assert self.rows("united", "route", "player", "score") == united
        assert self.rows("all_rows", "route", "player", "score") == every
        totals = sums(sum((Counter({row[1:]: count}) for row, count in every.items()), Counter()))
        assert self.rows("all_groups", "player", "score") == Counter(totals.items())


def sums(rows: Counter[tuple[Any, ...]]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for (player, score), count in rows.items():
        found[player] += score * count
    return dict(found)


DERIVED = [
    *(f"{kind}_{game}" for kind in ("groups", "rows", "players") for game in GAMES),
    *("all_groups", "all_rows", "united"),
]


@pytest.mark.parametrize("seed", range(2))
def test_tables_are_what_their_queries_return(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    games = Games(spark, tmp_path, Random(seed))
    for game in GAMES:
        games.land(game)
    games.derive()
    games.assert_derived()
    for _ in range(3):
        game = games.random.choice(GAMES)
        action = games.random.choice((games.land, games.create_again, games.create_again))
        action(game)
        if games.random.random() < 0.5:
            games.meddle(f"silver_{game}")
        for table in games.random.sample(DERIVED, 4):
            games.meddle(table)
        if games.random.random() < 0.5:
            games.start()
        games.derive()
        games.assert_derived()


def test_rows_that_others_change_are_computed_again_and_that_is_reported(
    spark: SparkSession, tmp_path: Path
) -> None:
    games = Games(spark, tmp_path, Random(0))
    for game in GAMES:
        games.land(game)
    games.derive()
    DeltaTable(tmp_path / "rows_chess").delete("player IS NOT NULL")
    games.derive()
    games.assert_derived()
    rebuilt = [event.table for event in games.events if isinstance(event, TableRebuilt)]
    assert rebuilt == ["rows_chess"]
    version = DeltaTable(tmp_path / "rows_chess").version()
    games.derive()
    assert DeltaTable(tmp_path / "rows_chess").version() == version
