"""A SELECT of `gold`, as what runs it needs to know it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from sqlglot import exp

from headgate.sql.parse import (
    CHANGING,
    calls_in,
    quoted,
    same_for_spark,
    sql_of,
)
from headgate.sql.select import (
    TABLE_COLUMN,
    ReadSelect,
    has_grouping_sets,
    read_select,
)


@dataclass(frozen=True)
class OutputColumn:
    """A column that the SELECT gives, and what of the input it is made of."""

    name: str
    expression: str


@dataclass(frozen=True)
class GroupKey:
    """What rows are grouped by, and the output that shows it, if there is one."""

    expression: str
    output: str | None


@dataclass(frozen=True)
class GoldSelect:
    """One SELECT over the landed tables; all SQL is Spark's, with names in backticks."""

    sql: str
    """As it is declared."""
    outputs: tuple[OutputColumn, ...]
    keys: tuple[GroupKey, ...]
    where: str | None
    columns: frozenset[str]
    """Columns of the tables that it uses, as it writes them; Spark reads them in any case."""
    _read: ReadSelect = field(repr=False, compare=False)

    @property
    def has_route(self) -> bool:
        """Whether it asks for the route that a row came by."""
        return any(name.lower() == "route" for name in self.columns)

    @property
    def surely_columns(self) -> frozenset[str]:
        """Those that can only be columns of the tables: nothing that queries inside give a name."""
        if self._read.simple:
            return self.columns
        tree = self._read.tree
        named = {name.alias_or_name for name in tree.find_all(exp.Alias, exp.Table, exp.CTE)}
        for alias in tree.find_all(exp.TableAlias):
            named |= {alias.name, *(column.name for column in alias.columns)}
        own = {name.lower() for name in named}
        return frozenset(name for name in self.columns if name.lower() not in own)

    @property
    def canonical(self) -> str:
        """The same text for declarations that differ in comments and spaces alone."""
        return sql_of(self._read.tree)

    @cached_property
    def row_by_row(self) -> bool:
        """Whether each row of the input gives rows of its own, so that new ones can be appended."""
        clauses = ("distinct", "limit", "offset", "qualify", "having")
        return (
            self._read.simple
            and not self._read.aggregated
            and not any(self._read.tree.args.get(key) for key in clauses)
            and self._read.tree.find(exp.Window) is None
        )

    @property
    def is_one_row(self) -> bool:
        """Whether it gives a row even of no rows: aggregates of all of them, in no groups."""
        return self._read.aggregated and not self._read.keys

    @property
    def changing(self) -> str | None:
        """A call in it that gives another value each time, if there is one."""
        return next((sql_of(call) for call in calls_in(self._read.tree, CHANGING)), None)

    def over(self, view: str) -> str:
        """The SELECT as it is declared, over the rows of one table."""
        names = [(each.this.meta, each.alias) for each in self._read.tables]
        text = self._read.text
        for meta, alias in sorted(names, key=lambda each: -each[0]["start"]):
            start, end = meta["start"], meta["end"] + 1
            # What asks for `silver.user_name` still finds it.
            name = quoted(view) if alias else f"{quoted(view)} AS {text[start:end]}"
            text = text[:start] + name + text[end:]
        return text.strip().rstrip(";").rstrip()

    def by_table(self, view: str) -> str | None:
        """The SELECT over the rows of many tables, each by itself and named by `_table`.

        None where that takes a query for each of them: LIMIT, queries inside, joins.
        """
        tree = self._read.tree
        if not self._read.simple or has_grouping_sets(tree):
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
            # One that is only named has its parts where it is defined.
            if not window.args.get("alias") or window.args.get("over") is None:
                window.set("partition_by", [table.copy(), *parts])
        if self._read.aggregated:
            tree.set("group", exp.Group(expressions=[table.copy(), *self._group()]))
        return sql_of(tree)

    def _group(self) -> list[exp.Expr]:
        """What it groups by; a constant says nothing, and a number would mean an output."""
        return [each.copy() for each in self._read.keys if each.find(exp.Column)]


def parse_gold(sql: str) -> GoldSelect:
    """What a declared SELECT is made of. Raises `InvalidPipeline` if it is none."""
    read = read_select(sql)
    where = read.tree.args.get("where")
    shown_by = {same_for_spark(each.node): each.name for each in reversed(read.outputs)}
    return GoldSelect(
        sql=sql,
        outputs=tuple(OutputColumn(each.name, sql_of(each.node)) for each in read.outputs),
        keys=tuple(
            GroupKey(sql_of(each), shown_by.get(same_for_spark(each))) for each in read.keys
        ),
        where=None if where is None else sql_of(where.this),
        columns=read.columns,
        _read=read,
    )


def read_of(select: GoldSelect) -> ReadSelect:
    """The parsed parts, for those in this package who look into them."""
    return select._read


@dataclass(frozen=True)
class UnionSelect:
    """Which rows of the tables go into the union, and what of them."""

    outputs: tuple[OutputColumn, ...]
    where: str | None
    columns: frozenset[str]
    """Columns of the tables that it uses, as it writes them; `route` is one if it is asked for."""

    @property
    def has_route(self) -> bool:
        """Whether it asks for the route that a row came by."""
        return any(name.lower() == "route" for name in self.columns)

    def sql(self, view: str, extra: str | None = None) -> str:
        """The rows, from a view of all tables; with a column more that the view has, if wanted."""
        outputs = [
            each.expression
            if each.expression == quoted(each.name)
            else f"{each.expression} AS {quoted(each.name)}"
            for each in self.outputs
        ]
        columns = ", ".join([*([quoted(extra)] if extra else []), *outputs])
        where = f"\nWHERE {self.where}" if self.where else ""
        return f"SELECT {columns}\nFROM {quoted(view)}{where}"
