"""Features: a SELECT from the viewpoint of one key at one moment.

The query sees only rows of its key that happened in the window before the moment. Every table in
it is replaced by exactly those rows, so it cannot read the future, in training as in serving.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from hashlib import sha256

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from headgate.errors import LandingError, did_you_mean, listed, shown
from headgate.lake.duck import Sql
from headgate.lake.query import quoted, quoted_name
from headgate.models.per_moment import MOMENT, MOMENTS, NUMBER, OWN, TIME, is_moment, per_moment
from headgate.sql.expressions import NONDETERMINISTIC, call_name, calls_in, columns_in
from headgate.sql.parse import as_written, bad_sql, position, sql_of
from headgate.sql.query import QueryText, parse_query

AT = "at"
"""The column with the moment of a row."""

RECORD_TIME = "_timestamp"
"""The column with the timestamp of a record, for rows without an event time."""

_KEY = f"{OWN}key"

_DUCKDB_UNSTABLE = """
    ago current_localtime current_localtimestamp current_query currval gen_random_uuid
    get_current_time get_current_timestamp getvariable nextval setseed today transaction_timestamp
    txid_current uuidv4 uuidv7
"""
_UNSTABLE = NONDETERMINISTIC | frozenset(_DUCKDB_UNSTABLE.split())
"""Functions of Spark or DuckDB that depend on more than the rows and the moment."""

_ANY_ROW = frozenset(["any_value", "first", "first_value", "last", "last_value"])
_GENERATORS = frozenset(["explode", "explode_outer", "inline", "posexplode", "posexplode_outer"])


@dataclass(frozen=True)
class FeatureQuery:
    """A query for the features of a key at a moment."""

    query: QueryText
    key: str
    time: str | None
    """The column with event times; None for the timestamps of records."""
    window: timedelta

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that it reads, each once."""
        return tuple(dict.fromkeys(source.table for source in self.query.sources))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the features."""
        return tuple(each.alias_or_name for each in self.query.tree.expressions)

    @property
    def digest(self) -> str:
        """A hash of everything that a feature depends on, apart from rows."""
        parts = (sql_of(self.query.tree), self.key, self.time or "", str(self.window))
        return sha256("\n".join(parts).encode()).hexdigest()[:16]

    def columns_of(self, table: str, names: Sequence[str]) -> list[str]:
        """Return the columns of a table that are worth reading."""
        needed = {each.lower() for each in (self.key, self.time, RECORD_TIME) if each}
        used = set(self.query.columns_of(names))
        return [name for name in names if name in used or name.lower() in needed]

    def evaluate(self, sql: Sql, moments: pa.Table) -> pa.Table:
        """Return the key, `at` and the features of every moment, in the order of the moments.

        The tables are registered in `sql` under their names.
        """
        key = moments[self.key]
        numbered = pa.table(
            {
                NUMBER: pa.array(range(len(moments)), pa.int64()),
                _KEY: key,
                TIME: moments[AT].cast(pa.timestamp("us", "UTC")),
            }
        )
        sources = self._sources(sql.schemas)
        found = [self._slice(sql, sources, part) for part in self._slices(numbered)]
        rows = pa.concat_tables(found, promote_options="permissive").sort_by(NUMBER)
        self._check_one_row_each(numbered, rows)
        return pa.table(
            {self.key: key, AT: numbered[TIME], **{name: rows[name] for name in self.names}}
        )

    def _slice(self, sql: Sql, sources: Mapping[str, str], moments: pa.Table) -> pa.Table:
        """Evaluate moments that are close together: a join sees only rows of their time."""
        bounds = pc.min_max(moments[TIME]).as_py()
        # Without moments the query is still evaluated, for the types of its columns.
        first, last = bounds["min"] or _EPOCH, bounds["max"] or _EPOCH
        after, until = _literal(first - self.window), _literal(last)
        length = f"to_microseconds({self.window // _MICROSECOND})"
        seen = ",\n".join(
            f"{OWN}rows_{at} AS MATERIALIZED ("
            f"SELECT r.* EXCLUDE ({_KEY}, {TIME}), m.{NUMBER}, m.{TIME}"
            f" FROM (SELECT * FROM ({source}) WHERE {TIME} > {after} AND {TIME} <= {until}) AS r"
            f" JOIN {MOMENTS} AS m ON r.{_KEY} = m.{_KEY}"
            f" AND r.{TIME} <= m.{TIME} AND r.{TIME} > m.{TIME} - {length})"
            for at, source in enumerate(sources.values())
        )
        names = ", ".join(map(quoted_name, (NUMBER, *self.names)))
        text = f"WITH {seen}\nSELECT {names} FROM (\n{self._for_all_moments}\n)"
        return sql.table(text, **{MOMENTS: moments})

    def _slices(self, moments: pa.Table) -> Iterator[pa.Table]:
        """Yield the moments of each day, or of each window if that is longer; all if few."""
        if len(moments) <= _FEW:
            yield moments
            return
        length = max(self.window, _DAY) // _MICROSECOND
        stretches = pc.divide(moments[TIME].cast(pa.int64()), length)
        ordered = moments.append_column("_stretch", stretches).sort_by("_stretch")
        counts = pc.value_counts(ordered["_stretch"]).field("counts").to_pylist()
        start = 0
        for count in counts:
            yield ordered.slice(start, count).drop_columns("_stretch")
            start += count

    @cached_property
    def _for_all_moments(self) -> str:
        views = {table: f"{OWN}rows_{at}" for at, table in enumerate(self._distinct_tables)}
        return per_moment(self.query.tree, views)

    @cached_property
    def _distinct_tables(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each.table.lower() for each in self.query.sources))

    def _sources(self, schemas: Mapping[str, pa.Schema]) -> dict[str, str]:
        """Return a SELECT for each table that adds its key and its event time."""
        by_name = {name.lower(): name for name in schemas}
        found: dict[str, str] = {}
        columns: dict[str, list[str]] = {}
        for source in self.query.sources:
            name = by_name.get(source.table.lower())
            if name is None:
                hint = did_you_mean(source.table, schemas) or f"there are {listed(schemas)}"
                raise bad_sql(
                    f"reads {shown(source.table)}, an unknown table", hint, source.position
                )
            columns.setdefault(source.alias.lower(), []).extend(schemas[name].names)
            if source.table.lower() not in found:
                found[source.table.lower()] = self._source(name, schemas[name])
        _check_columns(self.query.tree, columns)
        return found

    def _source(self, name: str, schema: pa.Schema) -> str:
        by_name = {each.lower(): each for each in schema.names}
        key = by_name.get(self.key.lower())
        if key is None:
            hint = did_you_mean(self.key, schema.names)
            raise bad_sql(f"reads {shown(name)}, which has no column {shown(self.key)}", hint)
        times = [
            by_name[each.lower()]
            for each in (self.time, RECORD_TIME)
            if each is not None and each.lower() in by_name
        ]
        if not times:
            wanted = self.time or RECORD_TIME
            hint = did_you_mean(wanted, schema.names) or "`time:` names the column of event times"
            raise bad_sql(f"reads {shown(name)}, which has no column {shown(wanted)}", hint)
        for each in times:
            if not pa.types.is_timestamp(schema.field(each).type):
                message = f"reads {shown(name)}, whose {shown(each)} is not a timestamp"
                raise bad_sql(message, "`time:` names the column of event times")
        time = f"coalesce({', '.join(map(quoted_name, times))})"
        own = f"{quoted_name(key)} AS {_KEY}, CAST({time} AS TIMESTAMPTZ) AS {TIME}"
        named = f"REPLACE ({time} AS {quoted_name(times[0])})" if len(times) > 1 else ""
        return f"SELECT * FROM (SELECT * {named}, {own} FROM {quoted_name(name)})"

    def _check_one_row_each(self, moments: pa.Table, rows: pa.Table) -> None:
        if rows[NUMBER].equals(moments[NUMBER]):
            return
        counts = dict(
            zip(*map(pa.Array.to_pylist, pc.value_counts(rows[NUMBER]).flatten()), strict=True)
        )
        number = next(at for at in range(len(moments)) if counts.get(at) != 1)
        moment = moments.slice(number, 1).to_pylist()[0]
        raise LandingError(
            "bad-query",
            f"the features have {counts.get(number, 0)} rows for {self.key} {moment[_KEY]}"
            f" at {moment[TIME]:%Y-%m-%d %H:%M:%S}; there must be one",
            hint="use aggregates without GROUP BY, such as count(*) and avg(…)",
        )


_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_DAY = timedelta(days=1)
_MICROSECOND = timedelta(microseconds=1)
_FEW = 100
"""Moments that are evaluated at once, however far apart they are."""


def parse_features(text: str, key: str, time: str | None, window: timedelta) -> FeatureQuery:
    """Parse a query for features. Raises `InvalidPipeline` with the place of what is wrong."""
    query = parse_query(text)
    if query.emits_changes:
        raise bad_sql("has EMIT CHANGES", "features are evaluated whenever they are needed")
    _refuse_other_rows(query.tree)
    _refuse_unstable(query.tree)
    _check_names(query.tree, key)
    per_moment(query.tree, {})
    return FeatureQuery(query, key, time, window)


def _refuse_other_rows(tree: exp.Select) -> None:
    """Refuse everything that could read rows other than those of the key and its window."""
    for table in tree.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier) or table.db:
            hint = "read tables of the lake by their names"
            raise bad_sql(f"reads from {shown(as_written(table))}", hint, position(table))
    for lateral in tree.find_all(exp.Lateral):
        if call_name(lateral.this) not in _GENERATORS:
            hint = "LATERAL VIEW goes with explode"
            raise bad_sql(f"has LATERAL {shown(as_written(lateral.this))}", hint, position(lateral))
    for name in tree.find_all(exp.Identifier):
        if name.name.lower().startswith(OWN):
            raise bad_sql(f"has {shown(name.name)}, a reserved name", inside=position(name))


def _refuse_unstable(tree: exp.Select) -> None:
    for call in calls_in(tree, _UNSTABLE):
        hint = f"write `{MOMENT}` for the time at which the features are evaluated"
        raise bad_sql(f"depends on {shown(as_written(call))}", hint, position(call))
    for call in calls_in(tree, _ANY_ROW):
        if call.find_ancestor(exp.Window) is None:
            hint = "max_by(value, time) and min_by(value, time) depend on rows alone"
            message = f"depends on the order of rows: {shown(as_written(call))}"
            raise bad_sql(message, hint, position(call))
    for select in tree.find_all(exp.Select):
        if select.args.get("limit") and not select.args.get("order"):
            raise bad_sql("has LIMIT without ORDER BY", inside=position(select.args["limit"]))


def _check_names(tree: exp.Select, key: str) -> None:
    taken = {key.lower(): "the key", AT: "the moment"}
    for node in tree.expressions:
        name = node.alias_or_name
        if node.is_star and not isinstance(node.unalias(), exp.Anonymous):
            raise bad_sql("has `*` among the features", "name each feature", position(node))
        if not name or (not isinstance(node, exp.Alias | exp.Column)):
            hint = f"write `{as_written(node)} AS name`"
            raise bad_sql(f"has a feature without a name: {shown(as_written(node))}", hint)
        if name.lower() in taken:
            message = f"has a feature {shown(name)}: that is the name of {taken[name.lower()]}"
            raise bad_sql(message, inside=position(node))
        taken[name.lower()] = "another feature"


def _check_columns(tree: exp.Select, columns: Mapping[str, Sequence[str]]) -> None:
    """Raise for a column that neither a table nor the query itself has."""
    named = {each.alias.lower() for each in tree.find_all(exp.Alias, exp.CTE)}
    for alias in tree.find_all(exp.TableAlias):
        named |= {alias.name.lower(), *(each.name.lower() for each in alias.columns)}
    for function in tree.find_all(exp.Lambda):
        named |= {each.name.lower() for each in function.expressions}
    every = [name for names in columns.values() for name in names]
    known = {name.lower() for name in every}
    ctes = {each.alias.lower() for each in tree.find_all(exp.CTE)}
    # The same alias may mean a table in one place and the query's own rows in another.
    own = {each.alias.lower() for each in tree.find_all(exp.Subquery)} | ctes
    own |= {
        each.alias_or_name.lower() for each in tree.find_all(exp.Table) if each.name.lower() in ctes
    }
    for column in columns_in([tree]):
        first, *rest = [part.name for part in column.parts]
        qualifier = first.lower()
        if qualifier in columns and qualifier not in own and rest:
            if rest[0].lower() not in map(str.lower, columns[qualifier]):
                hint = did_you_mean(rest[0], columns[qualifier])
                message = f"has {shown(f'{first}.{rest[0]}')}, a column that table does not have"
                raise bad_sql(message, hint, position(column))
        elif not is_moment(column) and qualifier not in known | named:
            hint = did_you_mean(first, [*every, MOMENT]) or f"columns are {', '.join(every[:12])}"
            raise bad_sql(f"has {shown(first)}, which no table has", hint, position(column))


def _literal(time: datetime) -> str:
    return f"TIMESTAMPTZ {quoted(time.isoformat(sep=' '))}"
