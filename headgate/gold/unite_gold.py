"""One table of the rows of many.

In an upsert, all rows of a source that has changed take the place of those that it had there; the
rows of a source are a partition, so that this is one commit. When appending, a source adds the rows
that it did not have when it was last looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import TableNotFoundError
from deltalake.transaction import create_table_with_add_actions

from headgate.gold.commit_gold import TABLE, pieces_of
from headgate.gold.declared_gold import DeclaredQuery, DeclaredUnion
from headgate.gold.landed import Landed
from headgate.gold.source_table import SourceRows, alike, rows_since, rows_then
from headgate.gold.spark_rows import Views, rows_of
from headgate.land.commit_with_delta_rs import add_action
from headgate.land.staged_file import StagedFile
from headgate.land.write_parquet import write_parquet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCE = "_source"
"""The table that a row came from, in every union."""

_LANDED = ("silver", "merged")


def unite(
    spark: SparkSession,
    lake: str,
    union: DeclaredUnion,
    queries: Sequence[DeclaredQuery],
    landed: Sequence[Landed],
) -> dict[str, Any] | None:
    """One Spark job and one commit, however many sources have changed; None without any."""
    routes = dict(_sources(union, queries, landed))
    touched = [
        rows
        for table in routes
        if (rows := rows_since(lake, table, union.name, f"{union.app}:{table}")) is not None
    ]
    if not touched:
        return None
    files: list[StagedFile] = []
    for schema, members in alike(touched, union.select.columns):
        files += _staged(spark, lake, union, schema, members, routes)
    version = _commit(lake, union, touched, files)
    return {
        "table": union.name,
        "rows": sum(file.rows for file in files),
        "version": version,
        "error": None,
    }


def _sources(
    union: DeclaredUnion, queries: Sequence[DeclaredQuery], landed: Sequence[Landed]
) -> Iterator[tuple[str, str]]:
    """The tables that the union is of, each with its route."""
    for one in landed:
        if union.declared.from_ in _LANDED:
            yield one.table, one.route
            continue
        for query in queries:
            table = query.table_for(one.name)
            if query.by_route and union.declared.takes(table):
                yield table, one.route


def _staged(
    spark: SparkSession,
    lake: str,
    union: DeclaredUnion,
    schema: pa.Schema,
    sources: Sequence[SourceRows],
    routes: dict[str, str],
) -> list[StagedFile]:
    with Views(spark) as views:

        def selected(rows: Sequence[SourceRows]) -> DataFrame:
            view = views.add(rows_of(spark, schema, rows, routes, by_source=True))
            return spark.sql(union.select.sql(view, extra=TABLE))

        wanted = selected(sources)
        if union.declared.mode == "append":
            before = [then for one in sources if one.is_whole and (then := rows_then(lake, one))]
            if before:
                wanted = wanted.exceptAll(selected(before))
        job = (
            wanted.repartition(TABLE)
            .sortWithinPartitions(TABLE)
            .mapInArrow(partial(_write, lake, union.name), "file string")
        )
        return [StagedFile.from_json(row.file) for row in job.collect()]


def _write(lake: str, table: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: a file for each source."""
    pieces = (piece for batch in batches for piece in pieces_of(batch))
    for source, mine in groupby(pieces, key=lambda piece: piece[0]):
        rows = pa.Table.from_batches([batch for _, batch in mine])
        name = f"part-{uuid4()}.parquet"
        file = write_parquet(lake, table, name, rows, partition={SOURCE: source})
        yield pa.RecordBatch.from_pydict({"file": [file.to_json()]})


def _commit(
    lake: str, union: DeclaredUnion, touched: Sequence[SourceRows], files: Sequence[StagedFile]
) -> int | None:
    marks = [Transaction(f"{union.app}:{one.source}", one.version) for one in touched]
    properties = CommitProperties(app_transactions=marks)
    actions = [add_action(file) for file in files]
    path = str(Path(lake, union.name))
    try:
        table = DeltaTable(path)
    except TableNotFoundError:
        if not files:
            return None
        columns = pa.schema([*files[0].schema, pa.field(SOURCE, pa.string())])
        create_table_with_add_actions(
            path,
            Schema.from_arrow(columns),
            actions,
            partition_by=[SOURCE],
            commit_properties=properties,
        )
        return 0
    replaces = union.declared.mode == "upsert"
    table.create_write_transaction(
        [*actions],
        "overwrite" if replaces else "append",
        table.schema(),
        partition_by=[SOURCE],
        partition_filters=[(SOURCE, "in", [one.source for one in touched])] if replaces else None,
        commit_properties=properties,
    )
    table.update_incremental()
    return int(table.version())
