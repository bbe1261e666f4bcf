"""A SELECT of `gold`, with the properties that decide how it is run."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from sqlglot import exp

from headgate.sql.expressions import NONDETERMINISTIC, calls_in
from headgate.sql.parse import normalized, quoted, sql_of
from headgate.sql.select import (
    TABLE_COLUMN,
    AnalyzedSelect,
    analyze_select,
    has_grouping_sets,
)


@dataclass(frozen=True)
class OutputColumn:
    """A column of the result and its expression over the input."""

    name: str
    expression: str


@dataclass(frozen=True)
class GroupKey:
    """An expression that rows are grouped by, and the output that is equal to it, if any."""

    expression: str
    output: str | None


@dataclass(frozen=True)
class GoldSelect:
    """One SELECT over the landed tables; all SQL is Spark's, with names in backticks."""

    sql: str
    """As declared."""
    outputs: tuple[OutputColumn, ...]
    keys: tuple[GroupKey, ...]
    where: str | None
    columns: frozenset[str]
    """Columns of the tables that it uses, as written; Spark ignores their case."""
    analyzed: AnalyzedSelect = field(repr=False, compare=False)

    @property
    def has_route(self) -> bool:
        """Whether it uses the route of a row."""
        return any(name.lower() == "route" for name in self.columns)

    @property
    def surely_columns(self) -> frozenset[str]:
        """Names that can only be columns of the tables, not aliases of subqueries."""
        if self.analyzed.simple:
            return self.columns
        tree = self.analyzed.tree
        named = {name.alias_or_name for name in tree.find_all(exp.Alias, exp.Table, exp.CTE)}
        for alias in tree.find_all(exp.TableAlias):
            named |= {alias.name, *(column.name for column in alias.columns)}
        own = {name.lower() for name in named}
        return frozenset(name for name in self.columns if name.lower() not in own)

    @property
    def canonical(self) -> str:
        """The same text for declarations that differ only in comments and whitespace."""
        return sql_of(self.analyzed.tree)

    @cached_property
    def row_by_row(self) -> bool:
        """Whether the rows of new input can be appended: each input row gives rows of its own."""
        clauses = ("distinct", "limit", "offset", "qualify", "having")
        return (
            self.analyzed.simple
            and not self.analyzed.aggregated
            and not any(self.analyzed.tree.args.get(key) for key in clauses)
            and self.analyzed.tree.find(exp.Window) is None
        )

    @property
    def is_one_row(self) -> bool:
        """Whether it returns a row even for no input: aggregates without GROUP BY."""
        return self.analyzed.aggregated and not self.analyzed.keys

    @property
    def changing(self) -> str | None:
        """A nondeterministic call in it, if any."""
        return next((sql_of(call) for call in calls_in(self.analyzed.tree, NONDETERMINISTIC)), None)

    def over(self, view: str) -> str:
        """Return the SELECT as declared, over the rows of one table."""
        names = [(each.this.meta, each.alias) for each in self.analyzed.tables]
        text = self.analyzed.text
        for meta, alias in sorted(names, key=lambda each: -each[0]["start"]):
            start, end = meta["start"], meta["end"] + 1
            # Keeps names such as `silver.user_name` valid.
            name = quoted(view) if alias else f"{quoted(view)} AS {text[start:end]}"
            text = text[:start] + name + text[end:]
        return text.strip().rstrip(";").rstrip()

    def by_table(self, view: str) -> str | None:
        """Return the SELECT over the rows of many tables, each by itself and named by `_table`.

        None if that needs a query for each table: LIMIT, subqueries, joins.
        """
        tree = self.analyzed.tree
        if not self.analyzed.simple or has_grouping_sets(tree):
            return None
        if any(tree.args.get(key) for key in ("limit", "offset")):
            return None
        tree = tree.copy()
        source = tree.args["from_"].this
        alias = source.alias_or_name
        source.replace(exp.to_table(quoted(view), dialect="spark", alias=exp.to_identifier(alias)))
        table = exp.column(TABLE_COLUMN)
        tree.set("expressions", [table, *tree.expressions])
        for key in ("order", "sort", "cluster", "distribute"):
            tree.set(key, None)
        for window in tree.find_all(exp.Window):
            parts = window.args.get("partition_by") or []
            # A reference to a named window is partitioned where the window is defined.
            if not window.args.get("alias") or window.args.get("over") is None:
                window.set("partition_by", [table.copy(), *parts])
        if self.analyzed.aggregated:
            tree.set("group", exp.Group(expressions=[table.copy(), *self._group()]))
        return sql_of(tree)

    def _group(self) -> list[exp.Expr]:
        """Return the keys without constants: a number would mean an output."""
        return [each.copy() for each in self.analyzed.keys if each.find(exp.Column)]


def parse_gold(sql: str) -> GoldSelect:
    """Parse a declared SELECT; raise `InvalidPipeline` if it is not valid."""
    read = analyze_select(sql)
    where = read.tree.args.get("where")
    shown_by = {normalized(each.node): each.name for each in reversed(read.outputs)}
    return GoldSelect(
        sql=sql,
        outputs=tuple(OutputColumn(each.name, sql_of(each.node)) for each in read.outputs),
        keys=tuple(GroupKey(sql_of(each), shown_by.get(normalized(each))) for each in read.keys),
        where=None if where is None else sql_of(where.this),
        columns=read.columns,
        analyzed=read,
    )


@dataclass(frozen=True)
class UnionSelect:
    """The rows and columns of tables that go into a union."""

    outputs: tuple[OutputColumn, ...]
    where: str | None
    columns: frozenset[str]
    """Columns of the tables that it uses, as written, including `route`."""

    @property
    def has_route(self) -> bool:
        """Whether it uses the route of a row."""
        return any(name.lower() == "route" for name in self.columns)

    def sql(self, view: str, extra: str | None = None) -> str:
        """Return SQL for the rows of a view of all tables, with an `extra` column of the view."""
        outputs = [
            each.expression
            if each.expression == quoted(each.name)
            else f"{each.expression} AS {quoted(each.name)}"
            for each in self.outputs
        ]
        columns = ", ".join([*([quoted(extra)] if extra else []), *outputs])
        where = f"\nWHERE {self.where}" if self.where else ""
        return f"SELECT {columns}\nFROM {quoted(view)}{where}"
