"""The gold tables of a Headgate pipeline, derived from the tables landed so far.

Written by `headgate export sdp`, which overwrites it. The declarations are in `gold.yml`, next to
this folder. Put your own tables into other files in this folder.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from pyspark import pipelines as dp
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import DataType, StringType

ROUTE = "{route}"

spark = SparkSession.active()


class Landed(NamedTuple):
    """A table that Headgate has landed."""

    name: str
    part: str
    """The value of `{route}` in the names of gold tables."""
    route: str
    columns: Mapping[str, DataType]
    """Types by lowercase name."""


class Declared(NamedTuple):
    """A declaration in `gold.yml`."""

    name: str
    reads: str
    """The name for all landed tables, or a pattern of gold table names."""
    columns: Sequence[str]
    """Lowercase names of the input columns that it uses."""
    outputs: Sequence[str]
    sql: str


class Input(NamedTuple):
    """A dataset that a declaration reads."""

    name: str
    columns: Collection[str]
    """Lowercase names."""
    route: str | None = None
    """The route of all rows, if the dataset has no such column."""


def read_landed(project: Mapping[str, Any]) -> list[Landed]:
    """Return every table in the ledger."""
    lake, name, template = project["lake"], project["pipeline"], project["template"]
    landed = (
        spark.read.format("delta")
        .load(f"{lake}/{project['ledger']}")
        .where(sf.col("pipeline").isin(name, f"{name}:replay"))
        .where(sf.col("kind") == ("merged" if template is None else "table"))
        .groupBy("table")
        .agg(sf.max("route"))
    )
    try:
        tables = sorted(landed.collect())
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        tables = []
    found = []
    for table, route in tables:
        part = table
        if template is not None:
            before, after = template.split(ROUTE)
            if route is None or not (table.startswith(before) and table.endswith(after)):
                continue
            part = table.removeprefix(before).removesuffix(after)
        schema = spark.read.format("delta").load(f"{lake}/{table}").schema
        columns = {field.name.lower(): field.dataType for field in schema}
        # Skip history tables, which are also `merged` in the ledger.
        if template is not None or "_is_current" not in columns:
            found.append(Landed(table, part, route or table, columns))
    return found


def quoted(name: str) -> str:
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def define_landed(lake: str, table: Landed, wanted: Mapping[str, DataType]) -> Input:
    """Define a view of a landed table, with its route, and null for missing columns."""
    # Cast by type name: a string type would add a collation, which few readers support.
    added = {name: sf.lit(None).cast(kind.simpleString()) for name, kind in wanted.items()}
    added["route"] = sf.lit(table.route)
    missing = {name: value for name, value in added.items() if name not in table.columns}

    @dp.temporary_view(name=quoted(table.name))
    def landed() -> DataFrame:
        return spark.read.format("delta").load(f"{lake}/{table.name}").withColumns(missing)

    return Input(table.name, {*table.columns, *missing})


def define_union(gold: str, columns: Sequence[str], inputs: Sequence[Input]) -> str:
    """Define a view of the same columns of many datasets; missing columns are null."""
    view = f"_into_{gold}"

    def value(one: Input, column: str) -> Column:
        if column in one.columns:
            return sf.col(quoted(column))
        return sf.lit(one.route if column == "route" else None).alias(column)

    @dp.temporary_view(name=quoted(view))
    def union() -> DataFrame:
        parts = [
            spark.table(quoted(one.name)).select(*(value(one, column) for column in columns))
            for one in inputs
        ]
        # A balanced tree of unions: a chain would nest the plan too deeply.
        while len(parts) > 1:
            pairs = [parts[at : at + 2] for at in range(0, len(parts), 2)]
            parts = [pair[0].union(pair[1]) if pair[1:] else pair[0] for pair in pairs]
        return parts[0]

    return view


def define_gold(name: str, declared: Declared, dataset: str) -> None:
    """Define a gold table: the declared SQL over one dataset."""
    columns = ", ".join(map(quoted, declared.outputs))
    sql = (
        f"WITH {quoted(declared.reads)} AS (SELECT * FROM {quoted(dataset)})\n"
        f"SELECT {columns} FROM (\n{declared.sql}\n)"
    )

    @dp.materialized_view(name=quoted(name))
    def gold() -> DataFrame:
        return spark.sql(sql)


def define_all(project: Mapping[str, Any]) -> None:
    lake, source = project["lake"], project["source"]
    declarations = [Declared(name, **keys) for name, keys in project["gold"].items()]
    landed = read_landed(project)
    if not landed:
        raise SystemExit(f"No tables in {lake} yet; land some with `headgate run`.")
    known = {name: kind for table in landed for name, kind in table.columns.items()}
    named = [name for one in declarations if one.reads == source for name in one.columns]
    wanted = {name: known.get(name, StringType()) for name in named}
    inputs = [define_landed(lake, table, wanted) for table in landed]
    of_routes: list[Input] = []
    # Declarations that read gold tables come last, after all of those are defined.
    for declared in sorted(declarations, key=lambda one: one.reads != source):
        if ROUTE in declared.name:
            for table in landed:
                name = declared.name.replace(ROUTE, table.part)
                define_gold(name, declared, table.name)
                made = {output.lower() for output in declared.outputs}
                of_routes.append(Input(name, made, table.route))
            continue
        read = [one for one in of_routes if fnmatchcase(one.name, declared.reads)]
        if declared.reads == source:
            read = inputs
        if read:
            columns = declared.columns or ["route"]
            define_gold(declared.name, declared, define_union(declared.name, columns, read))


define_all(yaml.safe_load((Path(__file__).parents[1] / "gold.yml").read_text("utf-8")))
