"""Results of queries, and what a commit changes in them.

Every kind of query finds the rows of its result that a commit touches, as they were and as they
are now; their differences are what the commit changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Protocol

import pyarrow as pa

from headgate.lake.changes import (
    Changes,
    RowChanges,
    compare_rows,
    table_gone,
    version_gone,
)
from headgate.lake.duck import Engine
from headgate.lake.snapshot import Snapshot
from headgate.schema.conform import conform_rows
from headgate.sql.incremental import Incremental
from headgate.sql.query import ROW, BoundQuery, states_of, text_to_duckdb


class Tables:
    """The tables of a query, at the versions that its result has."""

    def __init__(
        self,
        snapshots: Mapping[str, Snapshot],
        schemas: Mapping[str, pa.Schema],
        used: Mapping[str, Sequence[str]],
        sql: Engine,
    ) -> None:
        self._sql = sql
        self._wanted = {
            alias: pa.schema([schema.field(name) for name in used[alias]])
            for alias, schema in schemas.items()
        }
        self._snapshots = dict(snapshots)
        self._versions = {alias: one.version for alias, one in snapshots.items()}
        self._rows: dict[str, tuple[int, pa.Table]] = {}

    @property
    def aliases(self) -> Sequence[str]:
        return list(self._versions)

    def snapshot(self, alias: str) -> Snapshot:
        kept, version = self._snapshots[alias], self._versions[alias]
        if kept.version != version:
            found = Snapshot.open(kept.lake, kept.table, version)
            if found is None:
                raise table_gone(kept.table)
            self._snapshots[alias] = kept = found
        return kept

    def rows(self, alias: str) -> pa.Table:
        """Return all rows of a table, with their numbers."""
        kept = self._rows.get(alias)
        if kept is None or kept[0] != self._versions[alias]:
            rows = _read(self.snapshot(alias), self._wanted[alias], self._sql)
            kept = self._rows[alias] = self._versions[alias], numbered(rows)
        return kept[1]

    def advance(self, alias: str, version: int) -> None:
        self._versions[alias] = version


def _read(snapshot: Snapshot, wanted: pa.Schema, sql: Engine) -> pa.Table:
    """Read columns, of which the version may not have all."""
    known = set(snapshot.schema.names)
    rows = portions(snapshot, [name for name in wanted.names if name in known], sql)
    return pa.Table.from_batches([conform_rows(portion, wanted) for portion in rows], wanted)


def read(snapshot: Snapshot, columns: Sequence[str], sql: Engine) -> pa.Table:
    """Return the rows of a version."""
    columns = columns or snapshot.schema.names[:1]
    return pa.Table.from_batches(portions(snapshot, columns, sql), snapshot.selected(columns))


def portions(snapshot: Snapshot, columns: Sequence[str], sql: Engine) -> Iterator[pa.RecordBatch]:
    """Read rows in order, with at least one column: it counts them."""
    try:
        found = snapshot.portions_in_order(columns or snapshot.schema.names[:1])
        yield from sql.bounded(found)
    except FileNotFoundError as missing:
        raise version_gone(snapshot.table, snapshot.version, str(missing)) from None


def numbered(rows: pa.Table, start: int = 0) -> pa.Table:
    numbers = pa.array(range(start, start + len(rows)), pa.int64())
    return rows.append_column(ROW, numbers)


class Evaluator(Protocol):
    """Keeps the result of one query."""

    needs_start: ClassVar[bool]
    """Whether changes can be applied only to a result that was started."""

    def start(self) -> Iterator[pa.Table]:
        """Return the rows of the result so far."""

    def apply(self, alias: str, changes: Changes) -> RowChanges:
        """Return what the next commit of a table changes in the result."""


@dataclass
class Rows:
    """The result of a query without groups: each row of the first table gives its own rows."""

    sql: Engine
    query: BoundQuery
    tables: Tables
    first: str

    needs_start: ClassVar = False

    def start(self) -> Iterator[pa.Table]:
        if len(self._all) > 1:
            yield _visible(
                self.query, self._rows({alias: self.tables.rows(alias) for alias in self._all})
            )
            return
        snapshot = self.tables.snapshot(self.first)
        columns = list(self.query.used[self.first])
        for portion in portions(snapshot, columns, self.sql):
            rows = numbered(pa.Table.from_batches([portion]))
            yield _visible(self.query, self._rows({self.first: rows}))

    def apply(self, alias: str, changes: Changes) -> RowChanges:
        if alias == self.first:
            old, new = self._touched_first(changes.rows)
            self.tables.advance(alias, changes.version)
        else:
            old, new = self._touched_joined(alias, changes)
        found = compare_rows(old, new, [ROW], self.sql)
        return _visible_changes(self.query, found)

    @property
    def _all(self) -> Sequence[str]:
        return self.tables.aliases

    def _touched_first(self, rows: RowChanges) -> tuple[pa.Table, pa.Table]:
        """Number rows so that an updated row has the same number before and after."""
        count, updated = len(rows.inserted), len(rows.after)
        gone = _joined(numbered(rows.before), numbered(rows.deleted, updated + count))
        come = _joined(numbered(rows.after), numbered(rows.inserted, updated))
        others = {alias: self.tables.rows(alias) for alias in self._all if alias != self.first}
        new = self._rows({**others, self.first: come})
        if not len(gone):
            return new.schema.empty_table(), new
        return self._rows({**others, self.first: gone}), new

    def _touched_joined(self, alias: str, changes: Changes) -> tuple[pa.Table, pa.Table]:
        """Take the rows of the first table that join with a changed row."""
        rows = changes.rows
        changed = _joined(*map(numbered, rows.tables))
        before = {one: self.tables.rows(one) for one in self._all}
        sql = self.query.touched_rows_sql(view_names(before), self.first, alias)
        touched = self.sql.table(sql, **_views({**before, alias: changed}))
        first = self.sql.table(
            f"SELECT * FROM rows SEMI JOIN touched USING ({ROW})",
            rows=before[self.first],
            touched=touched,
        )
        self.tables.advance(alias, changes.version)
        after = {**before, alias: self.tables.rows(alias), self.first: first}
        return self._rows({**before, self.first: first}), self._rows(after)

    def _rows(self, tables: Mapping[str, pa.Table]) -> pa.Table:
        return self.sql.table(self._rows_sql, **_views(tables))

    @cached_property
    def _rows_sql(self) -> str:
        sql = self.query.rows_sql(view_names(self._all), self.first)
        order = ROW if len(self._all) == 1 else "ALL"
        return f"SELECT * FROM ({sql}) ORDER BY {order}"


@dataclass
class Groups:
    """The result of a query with groups, whose touched groups are computed from the tables."""

    sql: Engine
    query: BoundQuery
    tables: Tables
    first: str
    last: pa.Table | None = None
    """The groups with their keys, as they were returned last."""

    needs_start: ClassVar = True

    def start(self) -> Iterator[pa.Table]:
        tables = {alias: self.tables.rows(alias) for alias in self.tables.aliases}
        self.last = self._ordered(
            self.sql.table(self.query.groups_sql(view_names(tables)), **_views(tables))
        )
        yield _visible(self.query, self.last)

    def apply(self, alias: str, changes: Changes) -> RowChanges:
        assert self.last is not None
        before = {one: self.tables.rows(one) for one in self.tables.aliases}
        changed = _joined(*map(numbered, changes.rows.tables))
        keys = self.query.group_keys_sql(view_names(before))
        touched = [self.sql.table(keys, **_views({**before, alias: changed}))]
        if alias != self.first:
            # Rows of an outer join that did or do not match.
            old_keys = self.sql.table(keys, **_views(before))
        self.tables.advance(alias, changes.version)
        after = {**before, alias: self.tables.rows(alias)}
        if alias != self.first:
            new_keys = self.sql.table(keys, **_views(after))
            touched += [old_keys, new_keys]
        groups = pa.concat_tables(touched)
        new = self._ordered(
            self.sql.table(
                self.query.groups_sql(view_names(after), "touched"), **_views(after), touched=groups
            )
        )
        same = self.query.same_group("l", "t")
        old = self.sql.table(
            f"SELECT l.* FROM last AS l SEMI JOIN touched AS t ON {same}",
            last=self.last,
            touched=groups,
        )
        rest = self.sql.table(
            f"SELECT l.* FROM last AS l ANTI JOIN touched AS t ON {same}",
            last=self.last,
            touched=groups,
        )
        self.last = pa.concat_tables([rest, new], promote_options="permissive")
        old = self._ordered(old).cast(new.schema)
        found = compare_rows(old, new, self.query.groups, self.sql)
        return _visible_changes(self.query, found)

    def _ordered(self, rows: pa.Table) -> pa.Table:
        names = ", ".join(self.query.groups)
        return self.sql.table(f"SELECT * FROM rows ORDER BY {names}", rows=rows)


@dataclass
class States:
    """The result of a query whose groups are merged from states, as derived tables are.

    New rows are merged into the groups that they belong to. Groups that lose rows are computed
    from the table.
    """

    sql: Engine
    query: BoundQuery
    tables: Tables
    first: str
    how: Incremental
    states: pa.Table | None = None

    needs_start: ClassVar = True

    def start(self) -> Iterator[pa.Table]:
        self.states = self._partial(self.tables.rows(self.first))
        yield _visible(self.query, self._outputs(self.states))

    def apply(self, alias: str, changes: Changes) -> RowChanges:
        assert self.states is not None
        rows = changes.rows
        if rows.only_inserts:
            partial = touched = self._partial(rows.inserted)
            self.tables.advance(alias, changes.version)
        else:
            touched = self._partial(_joined(*rows.tables))
            self.tables.advance(alias, changes.version)
            partial = self._among(self._partial(self.tables.rows(alias)), touched)
        old = self._among(self.states, touched)
        new = partial
        if rows.only_inserts:
            both = pa.concat_tables([old, partial], promote_options="permissive")
            merged = self.sql.table(text_to_duckdb(self.how.merge_sql("both", ())), both=both)
            new = merged.cast(partial.schema)
        rest = self._among(self.states, touched, "ANTI")
        self.states = pa.concat_tables([rest, new], promote_options="permissive")
        before, after = self._outputs(old), self._outputs(new)
        found = compare_rows(before.cast(after.schema), after, self._keys, self.sql)
        return _visible_changes(self.query, found)

    @property
    def _keys(self) -> list[str]:
        return [key.name for key in self.how.keys]

    def _partial(self, rows: pa.Table) -> pa.Table:
        return self.sql.table(text_to_duckdb(self.how.partial_sql("rows", ())), rows=rows)

    def _among(self, states: pa.Table, touched: pa.Table, kind: str = "SEMI") -> pa.Table:
        same = " AND ".join(f's."{key}" IS NOT DISTINCT FROM t."{key}"' for key in self._keys)
        sql = f"SELECT s.* FROM states AS s {kind} JOIN touched AS t ON {same or 'true'}"
        return self.sql.table(sql, states=states, touched=touched)

    def _outputs(self, states: pa.Table) -> pa.Table:
        sql = text_to_duckdb(self.how.outputs_sql("states", ()))
        order = ", ".join(f'"{key}"' for key in self._keys)
        return self.sql.table(f"{sql} {f'ORDER BY {order}' if order else ''}", states=states)


def evaluator(sql: Engine, query: BoundQuery, tables: Tables, first: str) -> Evaluator:
    """Return what keeps the result of a query."""
    if query.keys is None:
        return Rows(sql, query, tables, first)
    how = states_of(query) if len(tables.aliases) == 1 else None
    if how is not None:
        return States(sql, query, tables, first, how)
    return Groups(sql, query, tables, first)


def _visible(query: BoundQuery, rows: pa.Table) -> pa.Table:
    return rows.select(list(query.outputs))


def _visible_changes(query: BoundQuery, changes: RowChanges) -> RowChanges:
    return RowChanges(*(_visible(query, rows) for rows in changes.tables))


def _joined(*parts: pa.Table) -> pa.Table:
    return pa.concat_tables(parts, promote_options="permissive")


def view_names(tables: Iterable[str]) -> dict[str, str]:
    return {alias: f"t{at}" for at, alias in enumerate(sorted(tables))}


def _views(tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    return {view: tables[alias] for alias, view in view_names(tables).items()}
