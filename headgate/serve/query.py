"""Queries as programs use them: iterators over changes, which block or await new commits."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator

import pyarrow as pa

from headgate.errors import LandingError, did_you_mean, shown
from headgate.lake.duck import Engine, Sql
from headgate.serve.catalog import Catalog
from headgate.serve.evaluate import read
from headgate.serve.push import Change, ColumnsAdded, Portion, PushQuery, Start, located
from headgate.sql.query import QueryText, over_tables, parse_query

_POLL_SECONDS = 0.1


class Query:
    """The changes of a query's result; without `EMIT CHANGES`, its rows.

        for change in pipeline.query("SELECT * FROM orders WHERE store_id = 2 EMIT CHANGES"):
            print(change.operation, change.row, change.token)

    It ends with `LIMIT`; a query without `EMIT CHANGES` ends with its last row.
    """

    def __init__(self, catalog: Catalog, text: str, start: Start | None = None) -> None:
        with located():
            self._parsed = parse_query(text)
        self._catalog, self._text, self._start = catalog, text, start

    @property
    def emits_changes(self) -> bool:
        return self._parsed.emits_changes

    def read(self) -> pa.Table:
        """Return the rows of the result as they are now."""
        return pull(self._catalog, self._parsed)

    def portions(self) -> Iterator[Portion | ColumnsAdded | None]:
        """Yield what every commit changes; None whenever there is nothing new."""
        query = PushQuery(self._catalog, self._text, self._start)
        left = self._parsed.limit
        for portion in _all_portions(query):
            if isinstance(portion, Portion) and left is not None:
                portion = portion.first(left)
                left -= len(portion.rows)
            if not isinstance(portion, Portion) or len(portion.rows):
                yield portion
            if left == 0:
                return

    def __iter__(self) -> Iterator[Change]:
        for portion in self.portions():
            if portion is None:
                time.sleep(_POLL_SECONDS)
            elif isinstance(portion, Portion):
                yield from portion.changes()

    async def __aiter__(self) -> AsyncIterator[Change]:
        portions = self.portions()
        end = object()
        while (portion := await asyncio.to_thread(next, portions, end)) is not end:
            if portion is None:
                await asyncio.sleep(_POLL_SECONDS)
            elif isinstance(portion, Portion):
                for change in portion.changes():
                    yield change


def _all_portions(query: PushQuery) -> Iterator[Portion | ColumnsAdded | None]:
    yield from query.start()
    while True:
        yield query.poll()


def pull(catalog: Catalog, query: QueryText, sql: Engine | None = None) -> pa.Table:
    """Return the rows of a query as they are now."""
    sql = sql or Sql()
    views: dict[str, pa.Table] = {}
    names: dict[str, str] = {}
    columns: list[str] = []
    with located():
        for source in query.sources:
            table = catalog.resolve(source.table)
            if source.table.lower() not in names:
                view = names[source.table.lower()] = f"t{len(names)}"
                snapshot = catalog.open(table)
                columns += snapshot.schema.names
                views[view] = read(snapshot, query.columns_of(snapshot.schema.names), sql)
        try:
            return sql.table(over_tables(query, names), **views)
        except LandingError as error:
            raise _with_place(error, query, columns) from None


def _with_place(error: LandingError, query: QueryText, columns: list[str]) -> LandingError:
    """Return an error about an unknown column with its place in the query, and what was meant."""
    found = _UNKNOWN_COLUMN.match(error.message)
    place = query.place_of(found[1]) if found else None
    if found is None or place is None:
        return error
    message = f"the query has {shown(found[1])}, which no table has"
    where = "query:{}:{}".format(*place)
    return LandingError("bad-query", message, did_you_mean(found[1], columns), where)


_UNKNOWN_COLUMN = re.compile(r'Referenced column "([^"]+)" not found')
