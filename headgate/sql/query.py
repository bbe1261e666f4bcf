"""A query over tables of the lake, as a person or a program writes it: one SELECT.

With `EMIT CHANGES` it is a push query: it goes on, and returns what changes in its result.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise, product

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from headgate.errors import did_you_mean, shown
from headgate.sql.expressions import (
    NONDETERMINISTIC,
    aggregates_in,
    calls_in,
    columns_in,
    refuse_unsafe,
)
from headgate.sql.gold_select import parse_gold
from headgate.sql.incremental import Incremental, incremental
from headgate.sql.parse import (
    Position,
    as_written,
    bad_sql,
    parse_select,
    parse_spark,
    position,
    refuse_deep_nesting,
    sql_of,
    statement_tokens,
    token_position,
)
from headgate.sql.select import Output, group_keys, has_grouping_sets
from headgate.sql.time_windows import hide_windows, resolve_windows

GROUP = "_group"
"""The prefix of the columns with the values that rows are grouped by."""

ROW = "_row"
"""The column with the number of a row of the first table."""


_MAX_TOKENS = 5_000
"""Words, numbers and marks of a query, which takes some seconds of Python then."""


@dataclass(frozen=True)
class Source:
    """A table in FROM or JOIN, and the name that columns are qualified with."""

    table: str
    alias: str
    position: Position | None


@dataclass(frozen=True)
class QueryText:
    """A parsed query, before the columns of its tables are known."""

    text: str
    tree: exp.Select
    emits_changes: bool
    limit: int | None

    @cached_property
    def sources(self) -> tuple[Source, ...]:
        """The tables that it reads, each once for each place."""
        own = {each.alias.lower() for each in self.tree.find_all(exp.CTE)}
        return tuple(
            Source(each.name, each.alias_or_name, position(each))
            for each in self.tree.find_all(exp.Table, bfs=False)
            if each.name.lower() not in own
        )

    def columns_of(self, names: Sequence[str]) -> list[str]:
        """Return the columns of a table that the query may use."""
        stars = (each for each in self.tree.find_all(exp.Star, exp.Column) if each.is_star)
        if any(not isinstance(each.parent, exp.Anonymous) for each in stars):
            return list(names)
        written = {each.name.lower() for each in self.tree.find_all(exp.Identifier)}
        return [name for name in names if name.lower() in written]

    def place_of(self, column: str) -> Position | None:
        """Return where a column is written."""
        return next(
            (position(each) for each in columns_in([self.tree]) if each.name == column), None
        )

    @property
    def is_aggregated(self) -> bool:
        tree = self.tree
        return any(tree.args.get(key) for key in ("group", "having", "distinct")) or any(
            any(aggregates_in(each)) for each in tree.expressions
        )


@refuse_deep_nesting
def parse_query(text: str) -> QueryText:
    """Parse a query. Raises `InvalidPipeline` with the place of what is wrong."""
    emits, without = _cut_emit_changes(text)
    tree = parse_select(hide_windows(without, statement_tokens(without)))
    resolve_windows(tree)
    refuse_unsafe(tree)
    limit = _limit(tree) if emits else None
    query = QueryText(text, tree, emits, limit)
    if not query.sources:
        raise bad_sql("reads no table", "write `FROM` and a table of the lake")
    for table in tree.find_all(exp.Table):
        if table.args.get("version") or table.args.get("sample") or table.args.get("pivots"):
            hint = "a query reads all rows of the newest version"
            raise bad_sql(f"reads only some of {shown(table.name)}", hint, position(table))
    if emits:
        _refuse_beyond_changes(query)
    return query


def _cut_emit_changes(text: str) -> tuple[bool, str]:
    """Replace `EMIT CHANGES` by spaces, so that positions in the text stay the same."""
    tokens = statement_tokens(text)
    if len(tokens) > _MAX_TOKENS:
        hint = "declare a part of it as a derived table"
        message = f"has {len(tokens):,} words and marks; the limit is {_MAX_TOKENS:,}"
        raise bad_sql(message, hint, token_position(tokens[_MAX_TOKENS]))
    for first, second in pairwise(tokens):
        if _is_word(first, "EMIT") and _is_word(second, "CHANGES"):
            gap = "".join("\n" if c == "\n" else " " for c in text[first.start : second.end + 1])
            return True, text[: first.start] + gap + text[second.end + 1 :]
        if _is_word(first, "EMIT") and first is not tokens[0]:
            hint = did_you_mean(second.text, ["CHANGES"]) or "`EMIT CHANGES` is what there is"
            raise bad_sql(f"cannot emit {shown(second.text)}", hint, token_position(second))
    return False, text


def _is_word(token: Token, word: str) -> bool:
    return token.token_type == TokenType.VAR and token.text.upper() == word


_LIMIT = re.compile("[0-9]{1,18}")


def _limit(tree: exp.Select) -> int | None:
    limit = tree.args.get("limit")
    if limit is None:
        return None
    number = limit.expression
    if not isinstance(number, exp.Literal) or not _LIMIT.fullmatch(number.name):
        raise bad_sql("has a LIMIT that is not a number", inside=position(limit))
    tree.set("limit", None)
    return int(number.name)


_NOT_IN_PUSH_QUERIES = {
    "order": ("ORDER BY", "changes come in the order of commits"),
    "sort": ("SORT BY", "changes come in the order of commits"),
    "offset": ("OFFSET", "use --new or --from-version to skip rows"),
    "qualify": ("QUALIFY", "filter with WHERE or HAVING"),
    "with_": ("WITH", "write the query over the tables themselves, or declare a gold table"),
}


def _refuse_beyond_changes(query: QueryText) -> None:
    tree = query.tree
    for key, (clause, hint) in _NOT_IN_PUSH_QUERIES.items():
        if tree.args.get(key):
            raise bad_sql(f"has {clause} beside EMIT CHANGES", hint)
    if window := tree.find(exp.Window):
        hint = "GROUP BY window(time, '1 hour') groups rows by time"
        raise bad_sql("has a window function beside EMIT CHANGES", hint, position(window))
    if has_grouping_sets(tree):
        raise bad_sql("has several grouping sets beside EMIT CHANGES", "group by columns")
    if tree.args.get("distinct") and (
        tree.args.get("group") or any(any(aggregates_in(each)) for each in tree.expressions)
    ):
        raise bad_sql("has DISTINCT beside groups", "groups differ from each other without it")
    if sum(1 for _ in tree.find_all(exp.Query)) > 1:
        hint = "join the tables, or declare the inner query as a gold table"
        raise bad_sql("has a subquery beside EMIT CHANGES", hint)
    for call in calls_in(tree, NONDETERMINISTIC):
        hint = "the same row has to give the same result every time"
        raise bad_sql(f"depends on {shown(as_written(call))}", hint, position(call))
    names = [each.table.lower() for each in query.sources]
    for at, source in enumerate(query.sources):
        if source.table.lower() in names[:at]:
            hint = "beside EMIT CHANGES a table can be read once"
            raise bad_sql(f"reads {shown(source.table)} twice", hint, source.position)
    for join in tree.args.get("joins") or ():
        if join.side in ("RIGHT", "FULL") or join.kind in ("SEMI", "ANTI") or join.method:
            given = " ".join(filter(None, (join.method, join.side, join.kind)))
            hint = "beside EMIT CHANGES there are JOIN and LEFT JOIN"
            raise bad_sql(f"has {given} JOIN", hint, position(join))


@dataclass(frozen=True)
class BoundQuery:
    """A query whose columns have been found in its tables. All SQL that it returns is DuckDB's.

    Columns of the result are called `_0`, `_1` and so on, because their names may be equal.
    """

    names: tuple[str, ...]
    """The columns of the result, as people see them."""
    used: Mapping[str, tuple[str, ...]]
    """The columns that it reads, by alias: at least one of each table, so that rows are counted."""
    tree: exp.Select
    keys: tuple[exp.Expr, ...] | None
    """What rows are grouped by; None if they are not."""

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(f"_{at}" for at in range(len(self.names)))

    @property
    def groups(self) -> tuple[str, ...]:
        """The columns that identify a group; without GROUP BY there is one group."""
        return tuple(f"{GROUP}{at}" for at in range(max(len(self.keys or ()), 1)))

    def rows_sql(self, views: Mapping[str, str], first: str) -> str:
        """Return the query for rows, with the number of the row of the first table."""
        return self._sql(views, [_row_of(first), *self._outputs()])

    def touched_rows_sql(self, views: Mapping[str, str], first: str, upto: str) -> str:
        """Return the rows of the first table that join with a row of the table `upto`.

        Joins before it stay outer: a row without a match there may have one in `upto`.
        """
        tree = self._over(views)
        joins = tree.args["joins"]
        aliases = [each.this.alias_or_name.lower() for each in joins]
        joins = joins[: aliases.index(upto.lower()) + 1]
        joins[-1].set("side", None)
        plain = exp.Select(expressions=[_row_of(first)], joins=joins, distinct=exp.Distinct())
        plain.set("from_", tree.args["from_"])
        return to_duckdb(plain)

    def groups_sql(self, views: Mapping[str, str], touched: str | None = None) -> str:
        """Return the query for all groups, or for those in the view `touched`."""
        sql = self._sql(views, [*self._keys(), *self._outputs()], grouped=True)
        if touched is None:
            return sql
        same = self.same_group("g", "t")
        return f"SELECT g.* FROM ({sql}) AS g SEMI JOIN {touched} AS t ON {same}"

    def same_group(self, one: str, other: str) -> str:
        """Return the condition that rows of two relations are of the same group."""
        return " AND ".join(
            f"{one}.{name} IS NOT DISTINCT FROM {other}.{name}" for name in self.groups
        )

    @property
    def canonical(self) -> str:
        """The SELECT in Spark's SQL, with all its columns written out."""
        tree = self.tree.copy()
        tree.set("expressions", self._outputs())
        if self.keys:
            tree.set("group", exp.Group(expressions=[key.copy() for key in self.keys]))
        return sql_of(tree)

    def group_keys_sql(self, views: Mapping[str, str]) -> str:
        """Return the groups that rows belong to."""
        tree = self._over(views)
        for clause in ("group", "having"):
            tree.set(clause, None)
        tree.set("expressions", self._keys())
        tree.set("distinct", exp.Distinct())
        return to_duckdb(tree)

    def _sql(
        self, views: Mapping[str, str], columns: Sequence[exp.Expr], grouped: bool = False
    ) -> str:
        tree = self._over(views)
        tree.set("expressions", list(columns))
        if grouped:
            keys = [key.copy() for key in self.keys or ()]
            tree.set("group", exp.Group(expressions=keys) if keys else None)
        return to_duckdb(tree)

    def _over(self, views: Mapping[str, str]) -> exp.Select:
        tree = self.tree.copy()
        for table in list(tree.find_all(exp.Table)):
            _read_from(views[table.alias_or_name.lower()], table)
        return tree

    def _keys(self) -> list[exp.Expr]:
        keys: Sequence[exp.Expr] = self.keys or (exp.Literal.number(0),)
        return [_named(key, name) for key, name in zip(keys, self.groups, strict=True)]

    def _outputs(self) -> list[exp.Expr]:
        nodes = (each.unalias() for each in self.tree.expressions)
        return [_named(node, name) for node, name in zip(nodes, self.outputs, strict=True)]


def _row_of(alias: str) -> exp.Expr:
    column = exp.column(exp.to_identifier(ROW, quoted=True), exp.to_identifier(alias, quoted=True))
    return _named(column, ROW)


def _named(node: exp.Expr, name: str) -> exp.Expr:
    return exp.alias_(node.copy(), name, quoted=True)


def to_duckdb(tree: exp.Expr) -> str:
    """Return SQL of DuckDB that means what Spark's SQL means."""
    return text_to_duckdb(sql_of(tree))


def over_tables(query: QueryText, views: Mapping[str, str]) -> str:
    """Return the whole query in DuckDB's SQL, over views by the names of tables."""
    tree = query.tree.copy()
    own = {each.alias.lower() for each in tree.find_all(exp.CTE)}
    for table in list(tree.find_all(exp.Table)):
        if table.name.lower() not in own:
            _read_from(views[table.name.lower()], table)
    return to_duckdb(tree)


def _read_from(view: str, table: exp.Table) -> None:
    """Replace a table by a view that columns are qualified with as before."""
    alias = exp.TableAlias(this=exp.to_identifier(table.alias_or_name, quoted=True))
    table.replace(exp.Table(this=exp.to_identifier(view, quoted=True), alias=alias))


@lru_cache(1_000)
def text_to_duckdb(sql: str) -> str:
    (tree,) = parse_spark(sql)
    assert tree is not None
    return tree.sql(dialect="duckdb", copy=False)


_NOT_IN_DUCKDB = frozenset(["hll_sketch_agg", "hll_union_agg", "approx_count_distinct"])


def states_of(query: BoundQuery) -> Incremental | None:
    """Return how the groups of a query are merged from states; None if they cannot be."""
    if any(calls_in(query.tree, _NOT_IN_DUCKDB)):
        return None
    found = incremental(parse_gold(query.canonical))
    return found if isinstance(found, Incremental) else None


def bind(query: QueryText, columns: Mapping[str, Sequence[str]]) -> BoundQuery:
    """Find the columns of a query in its tables, whose columns are given by alias.

    Raises `InvalidPipeline` for a name that no table has.
    """
    return _Binder(query, {alias.lower(): tuple(names) for alias, names in columns.items()}).bind()


@dataclass
class _Binder:
    query: QueryText
    columns: Mapping[str, tuple[str, ...]]

    def bind(self) -> BoundQuery:
        tree = self.query.tree.copy()
        tree.set("expressions", list(self._expanded(tree.expressions)))
        names = [_shown_name(each) for each in tree.expressions]
        aliases = {each.alias.lower() for each in tree.expressions if isinstance(each, exp.Alias)}
        used: dict[str, dict[str, None]] = {alias: {} for alias in self.columns}
        for column in list(columns_in([tree])):
            if self._is_output(column, aliases):
                continue
            alias, name = self._resolve(column)
            used[alias][name] = None
        for name, alias in product(self._joined_by(), self.columns):
            if (found := _same(name, self.columns[alias])) is not None:
                used[alias][found] = None
        keys = self._group_keys(tree) if self.query.is_aggregated else None
        tree.set("distinct", None)
        by_alias = {alias: tuple(found) or self.columns[alias][:1] for alias, found in used.items()}
        return BoundQuery(tuple(names), by_alias, tree, keys)

    def _joined_by(self) -> Iterator[str]:
        """Return the names in `JOIN … USING (name)`, which are columns of both sides."""
        for join in self.query.tree.args.get("joins") or ():
            yield from (column.name for column in join.args.get("using") or ())

    def _expanded(self, expressions: Iterable[exp.Expr]) -> Iterator[exp.Expr]:
        for node in expressions:
            if not node.is_star or isinstance(node, exp.Anonymous):
                yield node
                continue
            qualifier = node.table if isinstance(node, exp.Column) else ""
            wanted = qualifier.lower()
            if wanted and wanted not in self.columns:
                hint = did_you_mean(wanted, self.columns)
                raise bad_sql(f"has no table {shown(qualifier)}", hint, position(node))
            for alias, names in self.columns.items():
                if wanted in ("", alias):
                    for name in names:
                        yield exp.column(
                            exp.to_identifier(name, quoted=True), exp.to_identifier(alias, True)
                        )

    def _is_output(self, column: exp.Column, aliases: set[str]) -> bool:
        """Whether a name after the outputs means one of them."""
        if column.table or column.name.lower() not in aliases:
            return False
        if any(column.name.lower() in map(str.lower, names) for names in self.columns.values()):
            return False
        return column.find_ancestor(exp.Group, exp.Having) is not None

    def _resolve(self, column: exp.Column) -> tuple[str, str]:
        """Return alias and name of the column, which may be followed by fields."""
        parts = [part.name for part in column.parts]
        qualifier = parts[0].lower()
        if len(parts) > 1 and qualifier in self.columns:
            found = _same(parts[1], self.columns[qualifier])
            if found is None:
                hint = did_you_mean(parts[1], self.columns[qualifier])
                message = f"has {shown('.'.join(parts[:2]))}, a column that table does not have"
                raise bad_sql(message, hint, position(column))
            return qualifier, found
        holders = [
            (alias, found)
            for alias, names in self.columns.items()
            if (found := _same(parts[0], names)) is not None
        ]
        if not holders:
            every = [name for names in self.columns.values() for name in names]
            hint = did_you_mean(parts[0], every) or f"columns are {', '.join(every[:12])}"
            raise bad_sql(f"has {shown(parts[0])}, which no table has", hint, position(column))
        if len(holders) > 1:
            hint = f"write {' or '.join(f'{alias}.{parts[0]}' for alias, _ in holders)}"
            message = f"has {shown(parts[0])}, which several tables have"
            raise bad_sql(message, hint, position(column))
        return holders[0]

    def _group_keys(self, tree: exp.Select) -> tuple[exp.Expr, ...]:
        outputs = [
            Output(each.alias_or_name or str(at), each.unalias())
            for at, each in enumerate(tree.expressions)
        ]
        if tree.args.get("distinct"):
            return tuple(each.node for each in outputs)
        return group_keys(tree, outputs)


def _shown_name(node: exp.Expr) -> str:
    if isinstance(node, exp.Alias):
        return node.alias
    if isinstance(node, exp.Column | exp.Dot):
        return node.name or as_written(node)
    return as_written(node)


def _same(name: str, names: Iterable[str]) -> str | None:
    return next((each for each in names if each.lower() == name.lower()), None)
