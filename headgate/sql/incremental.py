"""Plans a SELECT with GROUP BY as merges of new rows into the groups kept before."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from headgate.sql.expressions import (
    aggregates_in,
    call_name,
    column_of,
    enclosing_columns,
    is_aggregate,
    is_known,
)
from headgate.sql.gold_select import GoldSelect
from headgate.sql.mergeable import Merging, NotMergeable, PartialAggregate, merging_of
from headgate.sql.parse import Verbatim, normalized, quoted, sql_of
from headgate.sql.select import TABLE_COLUMN, AnalyzedSelect, has_grouping_sets


def _outputs_sql(how: Incremental, states: str, extra_keys: Sequence[str]) -> str:
    """`states` is a view in backticks, or a query in parentheses."""
    computed = [_named(each.expression, each.name) for each in how.outputs]
    columns = [*map(quoted, extra_keys), *computed, *map(quoted, how.hidden)]
    return f"SELECT {', '.join(columns)}\nFROM {states}"


def _key_columns(how: Incremental) -> list[str]:
    return [_named(each.expression, each.name) for each in how.keys]


def _named(expression: str, name: str) -> str:
    return quoted(name) if expression == quoted(name) else f"{expression} AS {quoted(name)}"


def _from(how: Incremental, view: str) -> str:
    where = f"\nWHERE {how.where}" if how.where else ""
    return f"FROM {quoted(view)} AS {quoted(how.source)}{how.laterals}{where}"


def _group_by(expressions: Iterable[str]) -> str:
    written = ", ".join(expressions)
    return f"\nGROUP BY {written}" if written else ""


EACH_TABLE = (TABLE_COLUMN,)


@dataclass(frozen=True)
class Key:
    """A column that rows are grouped by."""

    name: str
    expression: str
    """Over rows of the input."""
    visible: bool


@dataclass(frozen=True)
class State:
    """A column that is kept for each group: computed from rows, and merged with the kept value.

    A merged sum of decimals has more digits than a sum of rows, and has to be cast to its type.
    """

    name: str
    partial: str
    """Over rows of the input."""
    merge: str
    """Over column `name` of several states."""
    visible: str | None
    """The output that is equal to it, if any."""

    @property
    def function(self) -> str:
        """The aggregate that merges it."""
        return self.merge.partition("(")[0]


@dataclass(frozen=True)
class Computed:
    """An output, as an expression over keys and states."""

    name: str
    expression: str


@dataclass(frozen=True)
class Incremental:
    """How the groups of a SELECT are computed from new rows and from kept states.

    Views with states have the extra keys, the keys and the states as columns, and gold tables those
    and the outputs. With the extra key `_table`, rows of many tables are computed at once.
    """

    source: str
    """The name of the input in the SELECT."""
    laterals: str
    """The clauses `LATERAL VIEW …`."""
    where: str | None
    keys: tuple[Key, ...]
    states: tuple[State, ...]
    outputs: tuple[Computed, ...]

    @property
    def hidden(self) -> tuple[str, ...]:
        """Columns of gold tables besides the outputs."""
        keys = [each.name for each in self.keys if not each.visible]
        return (*keys, *(each.name for each in self.states if each.visible is None))

    def partial_sql(self, source_view: str, extra_keys: Sequence[str] = EACH_TABLE) -> str:
        """Return SQL from rows to states."""
        partials = [_named(each.partial, each.name) for each in self.states]
        columns = [*map(quoted, extra_keys), *_key_columns(self), *partials]
        grouped = _group_by([*map(quoted, extra_keys), *(each.expression for each in self.keys)])
        return f"SELECT {', '.join(columns)}\n{_from(self, source_view)}{grouped}"

    def merge_sql(self, states_view: str, extra_keys: Sequence[str] = EACH_TABLE) -> str:
        """Return SQL from several states of each group, new and kept, to one."""
        names = [quoted(name) for name in (*extra_keys, *(each.name for each in self.keys))]
        merged = [_named(each.merge, each.name) for each in self.states]
        columns = ", ".join([*names, *merged])
        return f"SELECT {columns}\nFROM {quoted(states_view)}{_group_by(names)}"

    def outputs_sql(self, states_view: str, extra_keys: Sequence[str] = EACH_TABLE) -> str:
        """Return SQL from states to the columns of the gold table: outputs, then hidden columns."""
        return _outputs_sql(self, quoted(states_view), extra_keys)

    def full_sql(self, source_view: str, extra_keys: Sequence[str] = EACH_TABLE) -> str:
        """Return SQL from all rows to the columns of the gold table."""
        states = self.partial_sql(source_view, extra_keys)
        return _outputs_sql(self, f"(\n{states}\n)", extra_keys)


_CLAUSES = {
    "distinct": "DISTINCT",
    "having": "HAVING",
    "qualify": "QUALIFY",
    "order": "ORDER BY",
    "sort": "SORT BY",
    "cluster": "CLUSTER BY",
    "distribute": "DISTRIBUTE BY",
    "limit": "LIMIT",
    "offset": "OFFSET",
    "windows": "window functions",
}


def incremental(select: GoldSelect) -> Incremental | NotMergeable:
    """Return how the groups of a SELECT are merged, or why they have to be recomputed."""
    read = select.analyzed
    if why := _why_not_mergeable(select, read):
        return NotMergeable(why)
    aggregates = {
        sql_of(node): merging_of(node) for each in read.outputs for node in aggregates_in(each.node)
    }
    for how in aggregates.values():
        if isinstance(how, NotMergeable):
            return how
    merging = {sql: how for sql, how in aggregates.items() if isinstance(how, Merging)}
    plan = _Plan(read, merging)
    outputs = tuple(
        Computed(each.name, plan.over_states(each.name, each.node)) for each in read.outputs
    )
    laterals = read.tree.args.get("laterals") or []
    return Incremental(
        source=read.tree.args["from_"].this.alias_or_name,
        laterals="".join(f"\n{sql_of(each).strip()}" for each in laterals),
        where=select.where,
        keys=tuple(plan.keys.values()),
        states=tuple(plan.states),
        outputs=outputs,
    )


def _why_not_mergeable(select: GoldSelect, read: AnalyzedSelect) -> str | None:
    tree = read.tree
    if tree.args.get("joins"):
        return "it joins tables"
    if not read.simple:
        return "it has subqueries" if not tree.find(exp.Pivot) else "it has PIVOT"
    if tree.find(exp.Window):
        return "it has window functions"
    for clause, shown in _CLAUSES.items():
        if tree.args.get(clause):
            return f"it has {shown}"
    if has_grouping_sets(tree):
        return "it has several grouping sets"
    if not read.aggregated:
        return "it has no aggregates, and so no groups to merge"
    if select.changing:
        return f"{select.changing.lower()} returns another value each time"
    for output in read.outputs:
        for name in _unknown_functions(output.node, read.keys):
            return f"{name} is unknown and may be an aggregate"
    return None


def _unknown_functions(node: exp.Expr, keys: Iterable[exp.Expr]) -> Iterable[str]:
    """Yield user-defined functions of columns that are not grouped by."""
    if is_aggregate(node) or normalized(node) in {normalized(each) for each in keys}:
        return
    name = call_name(node)
    if name is not None and not is_known(name) and _has_ungrouped(node, keys):
        yield name
    for child in node.iter_expressions():
        yield from _unknown_functions(child, keys)


def _has_ungrouped(node: exp.Expr, keys: Iterable[exp.Expr]) -> bool:
    if is_aggregate(node) or normalized(node) in {normalized(each) for each in keys}:
        return False
    return isinstance(node, exp.Column) or any(
        _has_ungrouped(child, keys) for child in node.iter_expressions()
    )


@dataclass
class _Plan:
    """Names keys and states: by the output that is equal to them, or else beginning with `_`."""

    read: AnalyzedSelect
    merging: dict[str, Merging]
    keys: dict[str, Key] = field(default_factory=dict)
    states: list[State] = field(default_factory=list)
    _taken: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        own = (TABLE_COLUMN, "route")
        outputs = [each.name for each in self.read.outputs]
        self._taken = {name.lower() for name in (*own, *outputs, *self.read.columns)}
        shown_by = {normalized(each.node): each.name for each in reversed(self.read.outputs)}
        for node in self.read.keys:
            # Constants do not distinguish groups, and a number would mean an output.
            if node.find(exp.Column):
                same = normalized(node)
                shown = shown_by.get(same)
                name = shown or self._hidden(f"_key_{re.sub(r'[^A-Za-z0-9_]+', '_', node.name)}")
                self.keys[same] = Key(name, sql_of(node), shown is not None)
        for output in self.read.outputs:
            how = self.merging.get(sql_of(output.node))
            if how is not None and how.value == "{0}":
                self._state(how.parts[0], output.name)

    def over_states(self, output: str, node: exp.Expr) -> str:
        """Return an output as an expression over keys and states."""
        return sql_of(self._over_states(output, exp.Paren(this=node.copy())).this)

    def _over_states(self, output: str, node: exp.Expr) -> exp.Expr:
        for child in list(node.iter_expressions()):
            # A bare identifier is part of a name, or a lambda variable with the name of a key.
            if isinstance(child, exp.Identifier):
                continue
            if key := self._key_for(child):
                child.replace(key)
            elif how := self.merging.get(sql_of(child)):
                names = [self._named(part, output) for part in how.parts]
                child.replace(_parsed(how.value.format(*map(quoted, names))))
            else:
                self._over_states(output, child)
        return node

    def _key_for(self, node: exp.Expr) -> exp.Column | None:
        """Return the column of the key that an expression equals, or a field inside of one."""
        known: list[tuple[exp.Expr, list[exp.Expr]]] = [(node, [])]
        known += enclosing_columns(node) if isinstance(node, exp.Column) else []
        for each, rest in known:
            if key := self.keys.get(normalized(each)):
                return column_of([exp.to_identifier(key.name, quoted=True), *rest])
        return None

    def _named(self, part: PartialAggregate, output: str) -> str:
        """Return the name of the state of a part; aggregates share equal states."""
        for state in self.states:
            if (state.partial, state.merge) == (
                part.partial,
                part.merge.format(quoted(state.name)),
            ):
                return state.name
        return self._state(part, None, f"_{output}_{part.suffix}")

    def _state(self, part: PartialAggregate, output: str | None, hidden: str = "") -> str:
        name = output or self._hidden(hidden)
        self.states.append(State(name, part.partial, part.merge.format(quoted(name)), output))
        return name

    def _hidden(self, wanted: str) -> str:
        """Return a name that is not taken by an output or a column."""
        name, number = wanted, 1
        while name.lower() in self._taken:
            number += 1
            name = f"{wanted}_{number}"
        self._taken.add(name.lower())
        return name


def _parsed(text: str) -> exp.Expr:
    (tree,) = Verbatim().parse(text)
    if tree is None:
        raise AssertionError(f"not an expression: {text}")
    return tree
