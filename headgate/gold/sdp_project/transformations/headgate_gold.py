"""The gold tables of a Headgate pipeline, over all that it has landed by now.

`headgate export sdp` wrote this file, and writes it anew. What it makes is declared in `gold.yml`,
beside this folder; tables of your own go into files of your own, in this folder.
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
    """What stands for `{route}` in the names of gold tables."""
    route: str
    columns: Mapping[str, DataType]
    """By their names in small letters."""


class Declared(NamedTuple):
    """What one declaration says."""

    name: str
    reads: str
    """What all landed tables are called, or a pattern of gold tables."""
    columns: Sequence[str]
    """Those of its inputs that it names, in small letters."""
    outputs: Sequence[str]
    sql: str


class Input(NamedTuple):
    """A dataset that a declaration reads."""

    name: str
    columns: Collection[str]
    """In small letters."""
    route: str | None = None
    """Of all its rows, where it has no column that says so."""


def read_landed(project: Mapping[str, Any]) -> list[Landed]:
    """Every table that the ledger tells of by now."""
    lake, name, template = project["lake"], project["pipeline"], project["template"]
    told = (
        spark.read.format("delta")
        .load(f"{lake}/{project['ledger']}")
        .where(sf.col("pipeline").isin(name, f"{name}:replay"))
        .where(sf.col("kind") == ("merged" if template is None else "table"))
        .groupBy("table")
        .agg(sf.max("route"))
    )
    try:
        tables = sorted(told.collect())
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
        # Histories, which the ledger calls merged as well, are left out.
        if template is not None or "_is_current" not in columns:
            found.append(Landed(table, part, route or table, columns))
    return found


def quoted(name: str) -> str:
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def define_landed(lake: str, table: Landed, wanted: Mapping[str, DataType]) -> Input:
    """A view of a table as it landed, with its route, and null for what it lacks."""
    # By the names of the types: Spark 4.2 would add to text how it is sorted, which few can read.
    beside = {name: sf.lit(None).cast(kind.simpleString()) for name, kind in wanted.items()}
    beside["route"] = sf.lit(table.route)
    lacks = {name: value for name, value in beside.items() if name not in table.columns}

    @dp.temporary_view(name=quoted(table.name))
    def landed() -> DataFrame:
        return spark.read.format("delta").load(f"{lake}/{table.name}").withColumns(lacks)

    return Input(table.name, {*table.columns, *lacks})


def define_union(gold: str, columns: Sequence[str], inputs: Sequence[Input]) -> str:
    """A view of some columns of many datasets; null where one of them lacks a column."""
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
        # In pairs, and pairs of pairs: a plan as deep as there are tables would be too deep.
        while len(parts) > 1:
            pairs = [parts[at : at + 2] for at in range(0, len(parts), 2)]
            parts = [pair[0].union(pair[1]) if pair[1:] else pair[0] for pair in pairs]
        return parts[0]

    return view


def define_gold(name: str, declared: Declared, dataset: str) -> None:
    """One gold table: the declared SQL over one dataset."""
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
    declarations = [Declared(name, **said) for name, said in project["gold"].items()]
    landed = read_landed(project)
    if not landed:
        raise SystemExit(f"Nothing has landed in {lake} yet; `headgate run` lands what there is.")
    known = {name: kind for table in landed for name, kind in table.columns.items()}
    named = [name for one in declarations if one.reads == source for name in one.columns]
    wanted = {name: known.get(name, StringType()) for name in named}
    inputs = [define_landed(lake, table, wanted) for table in landed]
    of_routes: list[Input] = []
    # Those that read gold tables come last, when it is known which ones there are.
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
