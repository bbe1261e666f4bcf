"""Queries that go on: the rows so far, then what every commit changes, in order."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from hashlib import sha256
from typing import Any, Literal
from urllib.parse import quote, unquote

import pyarrow as pa
from sqlglot.errors import SqlglotError

from headgate.errors import InvalidPipeline, LandingError, UsageError, shown
from headgate.lake.changes import RowChanges
from headgate.lake.duck import Engine, Sql
from headgate.lake.log import LogEntry
from headgate.lake.query import python_rows
from headgate.lake.snapshot import Snapshot
from headgate.serve.catalog import Catalog
from headgate.serve.evaluate import Tables, evaluator
from headgate.serve.feed import FeedPosition
from headgate.sql.parse import normalized
from headgate.sql.query import bind, parse_query

Operation = Literal["insert", "update", "delete"]


@dataclass(frozen=True)
class Change:
    """One row that is new in the result of a query, has changed, or is gone."""

    operation: Operation
    row: Mapping[str, Any]
    table: str
    """The table whose commit made the change."""
    version: int
    at: datetime
    token: str
    """Continues the query after this change."""
    before: Mapping[str, Any] | None = None
    """The row as it was, if it was updated or deleted."""

    @property
    def record(self) -> Mapping[str, object]:
        """The change as programs get it in JSON."""
        return {
            "op": self.operation,
            "row": self.row,
            "before": self.before,
            "table": self.table,
            "version": self.version,
            "at": self.at,
            "token": self.token,
        }


@dataclass(frozen=True)
class Start:
    """Where a query begins."""

    token: str | None = None
    from_version: int | None = None
    since: timedelta | None = None
    only_new: bool = False

    def __post_init__(self) -> None:
        given = [self.token, self.from_version, self.since, self.only_new or None]
        if sum(one is not None for one in given) > 1:
            raise UsageError(
                "bad-argument",
                "a query has one start",
                hint="give a token, a version, a time, or ask for new rows only",
            )


@dataclass(frozen=True)
class Portion:
    """Changes that one commit made, or a part of the rows so far."""

    table: str
    version: int
    at: datetime
    names: tuple[str, ...]
    rows: RowChanges
    token: str
    """Continues after the last of them."""
    partial: str
    """Continues after some of them, with their number behind."""
    start: int = 0
    """The number of changes before the first one."""

    def changes(self) -> Iterator[Change]:
        for at, (operation, row, before) in enumerate(self._rows()):
            last = at + 1 == len(self.rows)
            token = self.token if last else f"{self.partial}{self.start + at + 1}"
            yield Change(operation, row, self.table, self.version, self.at, token, before)

    def first(self, count: int) -> Portion:
        """Return the first changes, or all if there are not so many."""
        if count >= len(self.rows):
            return self
        deleted, after = len(self.rows.deleted), len(self.rows.after)
        updated = max(0, count - deleted)
        rows = RowChanges(
            self.rows.inserted.slice(0, max(0, updated - after)),
            self.rows.deleted.slice(0, count),
            self.rows.before.slice(0, updated),
            self.rows.after.slice(0, updated),
        )
        return replace(self, rows=rows, token=f"{self.partial}{self.start + count}")

    def parts(self, count: int) -> Iterator[Portion]:
        """Return the changes in portions of at most some number; at least one, if it is empty."""
        rest = self
        while len(rest.rows) > count:
            yield rest.first(count)
            rest = rest.without(count)
        yield rest

    def without(self, count: int) -> Portion:
        """Return the changes after the first ones."""
        deleted, after = len(self.rows.deleted), len(self.rows.after)
        rows = RowChanges(
            self.rows.inserted.slice(max(0, count - deleted - after)),
            self.rows.deleted.slice(count),
            self.rows.before.slice(max(0, count - deleted)),
            self.rows.after.slice(max(0, count - deleted)),
        )
        return replace(self, rows=rows, start=self.start + count)

    def _rows(self) -> Iterator[tuple[Operation, _Row, _Row | None]]:
        for row in self._named(self.rows.deleted):
            yield "delete", row, row
        before = self._named(self.rows.before)
        for row, was in zip(self._named(self.rows.after), before, strict=True):
            yield "update", row, was
        for row in self._named(self.rows.inserted):
            yield "insert", row, None

    def _named(self, rows: pa.Table) -> Iterator[_Row]:
        # Names may be equal, so they are not the names of the columns.
        for row in python_rows(rows):
            yield dict(zip(self.names, row.values(), strict=True))


_Row = dict[str, Any]


@dataclass(frozen=True)
class ColumnsAdded:
    """Columns that the result has from now on."""

    names: tuple[str, ...]


class PushQuery:
    """A query that goes on. Not safe for several threads."""

    def __init__(
        self,
        catalog: Catalog,
        text: str,
        start: Start | None = None,
        sql: Engine | None = None,
    ) -> None:
        self.catalog = catalog
        self._sql = sql or Sql()
        with located():
            self.query = parse_query(text)
        self._tables = {
            source.alias.lower(): catalog.resolve(source.table) for source in self.query.sources
        }
        self._first = next(iter(self._tables))
        begin = start or Start()
        self._place = None if begin.token is None else self._parse(begin.token)
        self._snapshots = {
            alias: catalog.open(self._tables[alias], version)
            for alias, version in self._begin(begin).items()
        }
        self._shows_rows_so_far = begin == Start()
        if self._place is not None:
            self._shows_rows_so_far = self._place.in_rows_so_far
        self._positions: dict[str, FeedPosition] = {
            alias: catalog.feed(one).after(one.version) for alias, one in self._snapshots.items()
        }
        self._schemas = {alias: one.schema for alias, one in self._snapshots.items()}
        self._bind()
        self._refuse_place_to_come(begin.token)
        begun = f"{self._token('s')}/0" if self._shows_rows_so_far else self._token("c")
        self.token = begin.token or begun
        """Continues after everything that the query has returned."""

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of the result."""
        return self._bound.names

    def start(self) -> Iterator[Portion]:
        """Return the rows so far, if they are wanted."""
        if not self._shows_rows_so_far:
            self._start_evaluator()
            return
        table, at = self._tables[self._first], datetime.now(UTC)
        version, token = self._snapshots[self._first].version, self._token("s")
        skip = 0 if self._place is None else self._place.changes
        self._place, count = None, 0
        for rows in self._started():
            portion = Portion(
                table,
                version,
                at,
                self.names,
                RowChanges.of_inserted(rows),
                f"{token}/{count + len(rows)}",
                f"{token}/",
                count,
            )
            count += len(rows)
            # A portion without rows would have the token of the one before.
            if len(rows) and count > skip:
                self.token = portion.token
                yield portion.without(max(0, skip - portion.start))
        self.token = self._token("c")

    def poll(self) -> Portion | ColumnsAdded | None:
        """Return what the next commit changes, which may be nothing; None if there is none yet."""
        alias = self._next()
        if alias is None:
            return None
        changes = self._positions[alias].peek()
        assert changes is not None
        if not changes.schema.equals(self._schemas[alias]):
            self._schemas[alias] = changes.schema
            if added := self._bind_again():
                return ColumnsAdded(added)
        # An alias may have any character, a token only those that a header can have.
        partial = f"{self._token('c')}+{quote(alias, safe='')}/"
        with located():
            rows = self._evaluator.apply(alias, changes)
        self._positions[alias].advance()
        self.token = self._token("c")
        portion = Portion(
            self._tables[alias],
            changes.version,
            changes.at,
            self.names,
            rows,
            self.token,
            partial,
        )
        place, self._place = self._place, None
        return portion if place is None else portion.without(place.changes)

    def _next(self) -> str | None:
        """Return the table with the earliest commit that is not in the result yet."""
        if self._place is not None and self._place.alias is not None:
            return self._place.alias
        waiting = [
            (changes.at, alias)
            for alias, position in self._positions.items()
            if (changes := position.peek()) is not None
        ]
        return min(waiting)[1] if waiting else None

    def _bind(self) -> None:
        columns = {alias: schema.names for alias, schema in self._schemas.items()}
        with located():
            self._bound = bind(self.query, columns)
            tables = Tables(self._snapshots, self._schemas, self._bound.used, self._sql)
            self._evaluator = evaluator(self._sql, self._bound, tables, self._first)

    def _bind_again(self) -> tuple[str, ...]:
        """Take over new columns and types of a table before its changes."""
        before = self.names
        self._snapshots = {
            alias: self.catalog.open(self._tables[alias], position.version)
            for alias, position in self._positions.items()
        }
        self._bind()
        self._start_evaluator()
        return tuple(name for name in self.names if name not in before)

    def _start_evaluator(self) -> None:
        if self._evaluator.needs_start:
            for _ in self._started():
                pass

    def _started(self) -> Iterator[pa.Table]:
        with located():
            yield from self._evaluator.start()

    def _refuse_place_to_come(self, token: str | None) -> None:
        """Raise if the token is after changes of a commit that its table does not have yet."""
        alias = None if self._place is None else self._place.alias
        if token is not None and alias is not None and self._positions[alias].peek() is None:
            raise _not_a_token(token)

    def _begin(self, begin: Start) -> dict[str, int | None]:
        """Return the versions that the query begins after; None for the newest ones."""
        if self._place is not None:
            return dict(zip(self._tables, self._place.versions, strict=True))
        if begin.from_version is not None:
            if len(self._tables) > 1:
                hint = "use --since, or the token of an earlier change"
                raise UsageError("bad-argument", "the query has several tables", hint=hint)
            return {self._first: begin.from_version}
        if begin.since is not None:
            since = datetime.now(UTC) - begin.since
            return {
                alias: last_version_before(self.catalog.open(table), since)
                for alias, table in self._tables.items()
            }
        return dict.fromkeys(self._tables)

    @cached_property
    def _identity(self) -> str:
        """The same for the same query over the same tables."""
        ids = [self.catalog.open(table).table_id for table in self._tables.values()]
        text = " ".join([normalized(self.query.tree), *ids])
        return sha256(text.encode()).hexdigest()[:8]

    def _token(self, kind: str) -> str:
        versions = ".".join(str(position.version) for position in self._positions.values())
        return f"{self._identity}-{kind}{versions}"

    def _parse(self, token: str) -> _Place:
        found = _TOKEN.fullmatch(token.strip())
        alias = unquote(found["alias"]) if found and found["alias"] else None
        versions = tuple(map(int, found["versions"].split("."))) if found else ()
        if (
            found is None
            or found["identity"] != self._identity
            or len(versions) != len(self._tables)
            or (alias is not None and alias not in self._tables)
        ):
            raise _not_a_token(token)
        return _Place(found["kind"] == "s", versions, alias, int(found["changes"] or 0))


_TOKEN = re.compile(
    r"(?P<identity>[0-9a-f]{8})-(?P<kind>[sc])(?P<versions>\d{1,18}(\.\d{1,18})*)"
    r"(\+(?P<alias>[^/]+))?(/(?P<changes>\d{1,18}))?",
    re.ASCII,
)


def _not_a_token(token: str) -> LandingError:
    return LandingError(
        "bad-token",
        f"{shown(token)} is not a token of this query",
        hint="a token goes on with the same query over the same tables; without a token, "
        "first come the rows so far",
    )


@dataclass(frozen=True)
class _Place:
    """What a token says: versions of the tables, and how many changes after them."""

    in_rows_so_far: bool
    versions: tuple[int, ...]
    alias: str | None
    """The table whose next commit made the changes."""
    changes: int


def last_version_before(snapshot: Snapshot, time: datetime) -> int:
    """Return the last version before a time, or the first one whose log is there."""
    version = snapshot.version
    while version > 0:
        try:
            if LogEntry.read(snapshot.url, version).at < time:
                break
        except FileNotFoundError:
            break
        version -= 1
    return version


@contextmanager
def located() -> Iterator[None]:
    """Raise errors of a query with their place in it."""
    try:
        yield
    except InvalidPipeline as error:
        where = "query:{}:{}".format(*error.inside) if error.inside else None
        message = f"the query {error.message}"
        raise LandingError("bad-query", message, error.hint, where) from None
    except RecursionError:
        raise LandingError("bad-query", "the query is nested too deeply") from None
    except SqlglotError as error:
        raise LandingError("bad-query", f"the query has no equivalent: {error}") from None
