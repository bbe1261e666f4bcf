"""The same over one table, with somebody who uses it with Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.interleave.tables_world import TABLE, TablesWorld
from tests.interleave.test_interleavings import AVOIDED
from tests.interleave.user import FewerRows, User, rows_where, same_rows
from tests.interleave.world import run_seed
from tests.rounds import rounds


@dataclass
class SparkUser(User):
    """Takes the steps of a user with SQL."""

    spark: SparkSession | None = None

    def sql(self, statement: str) -> None:
        assert self.spark is not None
        path = self.world.lake.path / self.table
        try:
            self.spark.sql(statement.format(table=f"delta.`{path}`"))
        except PySparkException as error:
            self.world.scheduler.note(f"user: ends with {str(error)[:120]}")

    def append(self) -> None:
        self.made += 1
        row = frozenset({(self.number, self.made), (self.text, "user")})
        columns = f"{self.number}, {self.text}"
        self.does(
            "append",
            lambda before: before + type(before)([row]),
            lambda: self.sql(f"INSERT INTO {{table}} ({columns}) VALUES ({self.made}, 'user')"),
        )

    def delete(self) -> None:
        numbers = self.numbers()
        gone = self.world.random.choice(numbers) if numbers else None
        if gone is not None:
            self.does(
                f"delete {gone}",
                lambda before: rows_where(before, lambda row: row.get(self.number) != gone),
                lambda: self.sql(f"DELETE FROM {{table}} WHERE {self.number} = {gone}"),
            )

    def update(self) -> None:
        numbers = self.numbers()
        number = self.world.random.choice(numbers) if numbers else None
        if number is not None:
            self.does(
                f"update {number}",
                lambda before: self.with_text(before, number, "updated"),
                lambda: self.sql(
                    f"UPDATE {{table}} SET {self.text} = 'updated' WHERE {self.number} = {number}"
                ),
            )

    def optimize(self) -> None:
        self.does("optimize", same_rows, lambda: self.sql("OPTIMIZE {table}"))

    def add_column(self) -> None:
        self.made += 1
        statement = f"ALTER TABLE {{table}} ADD COLUMN (u{self.made} STRING)"
        self.does("add column", same_rows, lambda: self.sql(statement))

    def delete_by_vector(self) -> None:
        numbers = self.numbers()
        if not numbers:
            return
        gone = self.world.random.choice(numbers)
        enable = "ALTER TABLE {table} SET TBLPROPERTIES (delta.enableDeletionVectors = true)"
        self.does("enable vectors", same_rows, lambda: self.sql(enable))
        with self.world.lake.operation(self.world.scheduler.actor or "", FewerRows("by vector")):
            self.sql(f"DELETE FROM {{table}} WHERE {self.number} = {gone}")


class TablesWithSpark(TablesWorld):
    spark: ClassVar[SparkSession]

    def user(self, kinds: tuple[str, ...]) -> User:
        return SparkUser(self, TABLE, kinds, spark=self.spark)


@pytest.mark.soak
@rounds(2, 60)
def test_all_versions_have_the_rows_of_the_model(spark: SparkSession, cases: int) -> None:
    TablesWithSpark.spark = spark
    for seed in range(cases):
        run_seed(TablesWithSpark, seed, avoided=AVOIDED["tables"])
