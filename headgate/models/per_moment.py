"""Rewrites a query about one moment into one about many: all rows carry the number of a moment.

Joins compare the numbers, groups and windows are per number, and an aggregate without groups has
a row for every moment, as it has for one. DuckDB's LATERAL is meant to do the same, but fails for
some queries with several subqueries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from headgate.errors import shown
from headgate.sql.expressions import call_name, innermost_call, is_aggregate
from headgate.sql.parse import as_written, bad_sql, position, sql_of
from headgate.sql.query import text_to_duckdb
from headgate.sql.select import has_grouping_sets

OWN = "_headgate_"
"""The prefix of names that queries cannot have."""
NUMBER, TIME = f"{OWN}number", f"{OWN}time"
"""Columns with the number of a moment, and the moment itself."""
MOMENTS = f"{OWN}moments"
"""The table of moments."""
MOMENT = "moment"
"""What a query calls its moment."""

_ALL = f"{OWN}all"
_GROUPED = f"{OWN}grouped"
_VALUE = f"{OWN}value"

_ZERO_IF_EMPTY = frozenset(["approx_count_distinct", "count", "count_if", "regr_count"])
"""Aggregates of no rows that are 0 in Spark; all others are null."""


def is_moment(column: exp.Column) -> bool:
    return not column.table and column.name.lower() == MOMENT


def per_moment(query: exp.Select, views: Mapping[str, str]) -> str:
    """Return the query for all moments in DuckDB's SQL, with the number of its moment in each row.

    The views, by table in lower case, have the rows that each moment may see, with its number and
    time. Raises `InvalidPipeline` for what cannot be rewritten.
    """
    return text_to_duckdb(sql_of(_Rewriter(views).query(query.copy())))


@dataclass
class _Rewriter:
    views: Mapping[str, str]
    _names: Iterator[str] = field(
        default_factory=lambda: iter(f"{OWN}{at}" for at in range(10_000))
    )

    def query(self, node: exp.Expr) -> exp.Expr:
        match node:
            case exp.Subquery():
                return self.query(node.this)
            case exp.SetOperation():
                for side in ("this", "expression"):
                    node.set(side, self.query(node.args[side]))
                return node
            case exp.Select():
                return self.select(node)
        raise bad_sql(f"has {shown(as_written(node))}", "write a SELECT", position(node))

    def select(self, tree: exp.Select) -> exp.Select:
        _refuse_clauses(tree)
        self._common_tables(tree)
        first = self._relations(tree)
        grouped = tree.args.get("group") is not None
        aggregates = [each for each in _in_scope(tree) if is_aggregate(each) and _outermost(each)]
        if aggregates and not grouped:
            return self._one_row(tree, first, aggregates)
        self._scalars(tree, tree, first)
        _place_moment(tree, first)
        for window in _windows(tree):
            window.set("partition_by", [_of(first, NUMBER), *(window.args["partition_by"] or [])])
        if grouped:
            for name in (NUMBER, TIME):
                tree.args["group"].append("expressions", _of(first, name))
        _limit_per_moment(tree, first, grouped)
        for name in (NUMBER, TIME):
            tree.append("expressions", exp.alias_(_of(first, name), name, quoted=True))
        return tree

    def _common_tables(self, tree: exp.Select) -> None:
        for each in tree.ctes:
            each.set("this", self.query(each.this))
            if each.args["alias"].columns:
                for name in (NUMBER, TIME):
                    each.args["alias"].append("columns", exp.to_identifier(name))

    def _relations(self, tree: exp.Select) -> str:
        """Let all relations be of the same moment; return the alias of the first."""
        if tree.args.get("from_") is None:
            tree.set("from_", exp.From(this=_table(MOMENTS, _ALL)))
            return _ALL
        first = self._relation(tree.args["from_"].this)
        for join in tree.args.get("joins") or ():
            if join.method or join.side in ("RIGHT", "FULL"):
                hint = "use JOIN, LEFT JOIN or CROSS JOIN"
                raise bad_sql(f"has {shown(as_written(join))}", hint, position(join))
            if isinstance(join.this, exp.Lateral | exp.Unnest):
                continue
            alias = self._relation(join.this)
            same = exp.EQ(this=_of(first, NUMBER), expression=_of(alias, NUMBER))
            if join.args.get("using"):
                join.append("using", exp.to_identifier(NUMBER))
            elif join.args.get("on"):
                join.set("on", exp.and_(join.args["on"], same))
            else:
                join.set("kind", None)
                join.set("on", same)
        return first

    def _relation(self, relation: exp.Expr) -> str:
        """Replace a table by the rows that each moment may see."""
        alias = relation.alias_or_name or next(self._names)
        match relation:
            case exp.Table() if not relation.args.get("joins"):
                view = self.views.get(relation.name.lower())
                if view is not None:
                    laterals = relation.args.get("laterals")
                    replaced = _table(view, alias)
                    replaced.set("laterals", laterals)
                    relation.replace(replaced)
            case exp.Subquery() if isinstance(relation.this, exp.Query):
                relation.set("this", self.query(relation.this))
                if not relation.alias:
                    relation.set("alias", exp.TableAlias(this=exp.to_identifier(alias)))
            case _:
                message = f"reads from {shown(as_written(relation))}"
                raise bad_sql(message, "read tables by their names", position(relation))
        return alias

    def _one_row(self, tree: exp.Select, first: str, aggregates: list[exp.Expr]) -> exp.Select:
        """Aggregate by moment, and add the moments that have no rows."""
        inner = exp.Select(expressions=[], joins=tree.args.get("joins"))
        for clause in ("from_", "where", "laterals"):
            inner.set(clause, tree.args.get(clause))
        names: dict[str, str] = {}
        for aggregate in aggregates:
            name = names.setdefault(sql_of(aggregate), f"{OWN}{len(names)}")
            found: exp.Expr = _of(_GROUPED, name)
            if call_name(innermost_call(aggregate)) in _ZERO_IF_EMPTY:
                found = exp.Coalesce(this=found, expressions=[exp.Literal.number(0)])
            aggregate.replace(found)
            if len(inner.expressions) < len(names):
                inner.append("expressions", exp.alias_(aggregate, name, quoted=True))
        self._scalars(inner, inner, first)
        _place_moment(inner, first)
        inner.append("expressions", exp.alias_(_of(first, NUMBER), NUMBER, quoted=True))
        inner.set("group", exp.Group(expressions=[_of(first, NUMBER)]))
        outer = exp.Select(expressions=tree.expressions, joins=[])
        outer.set("with_", tree.args.get("with_"))
        outer.set("from_", exp.From(this=_table(MOMENTS, _ALL)))
        outer.append("joins", _left_join(inner, _GROUPED, _ALL))
        if having := tree.args.get("having"):
            outer.set("where", exp.Where(this=having.this))
        self._scalars(outer, outer, _ALL)
        _place_moment(outer, _ALL)
        if window := next(_windows(outer), None):
            hint = "aggregate in a subquery"
            raise bad_sql("has a window function beside aggregates", hint, position(window))
        for name in (NUMBER, TIME):
            outer.append("expressions", exp.alias_(_of(_ALL, name), name, quoted=True))
        return outer

    def _scalars(self, scope: exp.Select, target: exp.Select, first: str) -> None:
        """Join subqueries that stand for a value."""
        for node in list(_in_scope(scope)):
            if isinstance(node, exp.Exists) or (
                isinstance(node, exp.In | exp.Any | exp.All) and node.find(exp.Query)
            ):
                hint = "use a JOIN; LEFT JOIN … WHERE … IS NULL finds what is missing"
                raise bad_sql(f"has {shown(as_written(node))}", hint, position(node))
            if not isinstance(node, exp.Subquery) or isinstance(node.parent, exp.From | exp.Join):
                continue
            inner = node.this
            if (
                not isinstance(inner, exp.Select)
                or len(inner.expressions) != 1
                or inner.args.get("group")
                or not any(is_aggregate(each) for each in inner.expressions[0].walk())
            ):
                hint = "a subquery for a value is an aggregate without GROUP BY"
                raise bad_sql(f"has {shown(as_written(node))}", hint, position(node))
            value = inner.expressions[0].unalias()
            inner.set("expressions", [exp.alias_(value, _VALUE, quoted=True)])
            alias = next(self._names)
            node.replace(_of(alias, _VALUE))
            target.append("joins", _left_join(self.select(inner), alias, first))


def _in_scope(tree: exp.Select) -> Iterator[exp.Expr]:
    """Yield the nodes of a SELECT without those of other SELECTs inside of it."""
    for key, value in tree.args.items():
        if key == "with_":
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, exp.Expr):
                yield from each.walk(prune=lambda node: isinstance(node, exp.Subquery | exp.Query))


def _outermost(aggregate: exp.Expr) -> bool:
    """Whether a call is an aggregate of its SELECT: not of a window, nor a part of another call."""
    parent = aggregate.parent
    if isinstance(parent, exp.Window) and parent.this is aggregate:
        return False
    while parent is not None and not isinstance(parent, exp.Select):
        if is_aggregate(parent):
            return False
        parent = parent.parent
    return True


def _windows(tree: exp.Select) -> Iterator[exp.Window]:
    return (each for each in list(_in_scope(tree)) if isinstance(each, exp.Window))


def _place_moment(tree: exp.Select, alias: str) -> None:
    for column in list(_in_scope(tree)):
        if isinstance(column, exp.Column) and is_moment(column):
            column.replace(_of(alias, TIME))


def _limit_per_moment(tree: exp.Select, first: str, grouped: bool) -> None:
    limit, order = tree.args.get("limit"), tree.args.get("order")
    tree.set("order", None)
    if limit is None:
        return
    if grouped or tree.args.get("distinct"):
        raise bad_sql("has LIMIT beside groups", "group in a subquery", position(limit))
    place = exp.Window(
        this=exp.Anonymous(this="row_number"), partition_by=[_of(first, NUMBER)], order=order
    )
    condition: exp.Expr = exp.LTE(this=place, expression=limit.expression)
    if qualify := tree.args.get("qualify"):
        condition = exp.and_(qualify.this, condition)
    tree.set("qualify", exp.Qualify(this=condition))
    tree.set("limit", None)


_REFUSED = ("offset", "windows", "cluster", "distribute", "sort", "connect", "match")


def _refuse_clauses(tree: exp.Select) -> None:
    for key in _REFUSED:
        if tree.args.get(key):
            raise bad_sql(f"has {key.upper()}", "write it without", position(tree))
    if has_grouping_sets(tree):
        raise bad_sql("has several grouping sets", "group by columns")
    if tree.args.get("with_") and tree.args["with_"].recursive:
        raise bad_sql("has WITH RECURSIVE", "write it without")
    for node in _in_scope(tree):
        if isinstance(node, exp.Star) and not isinstance(node.parent, exp.Anonymous):
            raise bad_sql("has `*`", "name the columns", position(node))


def _of(alias: str, name: str) -> exp.Column:
    return exp.column(name, alias, quoted=True)


def _table(name: str, alias: str) -> exp.Table:
    return exp.Table(
        this=exp.to_identifier(name), alias=exp.TableAlias(this=exp.to_identifier(alias))
    )


def _left_join(query: exp.Select, alias: str, to: str) -> exp.Join:
    return exp.Join(
        this=exp.Subquery(this=query, alias=exp.TableAlias(this=exp.to_identifier(alias))),
        side="LEFT",
        on=exp.EQ(this=_of(to, NUMBER), expression=_of(alias, NUMBER)),
    )
