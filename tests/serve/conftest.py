"""A lake for queries, whose tables tests write to themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from headgate.config import Confluent, Delta, PipelineConfig, Registry
from headgate.serve.catalog import Catalog
from headgate.serve.feed import Feed
from headgate.serve.push import Change, ColumnsAdded, PushQuery, Start
from headgate.serve.query import pull
from headgate.sql.query import parse_query


class QueryLake:
    """A lake, and queries over it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "lake"
        self.pipeline = PipelineConfig(
            name="pizza",
            source=Delta(path=str(folder / "inbox")),
            registry=Registry(folder=str(folder / "schemas")),
            envelope=Confluent(),
            lake=str(self.path),
        )
        self.catalog = Catalog(self.pipeline)

    def append(self, table: str, rows: list[dict[str, Any]]) -> None:
        write_deltalake(
            self.path / table, pa.Table.from_pylist(rows), mode="append", schema_mode="merge"
        )

    def delta(self, table: str) -> DeltaTable:
        return DeltaTable(self.path / table)

    def feed(self, table: str) -> Feed:
        return self.catalog.feed(self.catalog.open(table))

    def pull(self, sql: str) -> pa.Table:
        return pull(self.catalog, parse_query(sql))

    def query(self, sql: str, **start: Any) -> Reader:
        return Reader(PushQuery(self.catalog, sql, Start(**start)))


class Reader:
    """Reads all that a query has by now."""

    def __init__(self, query: PushQuery) -> None:
        self.query = query
        self.notices: list[ColumnsAdded] = []
        self._started = False

    def read(self) -> list[Change]:
        found: list[Change] = []
        if not self._started:
            self._started = True
            found += [change for portion in self.query.start() for change in portion.changes()]
        while (portion := self.query.poll()) is not None:
            if isinstance(portion, ColumnsAdded):
                self.notices.append(portion)
            else:
                found += portion.changes()
        return found

    def rows(self) -> list[tuple[str, dict[str, Any]]]:
        return [(change.operation, dict(change.row)) for change in self.read()]


@pytest.fixture
def lake(tmp_path: Path) -> QueryLake:
    return QueryLake(tmp_path)
