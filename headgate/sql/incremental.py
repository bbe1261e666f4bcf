"""Finds out whether the groups of a SELECT can be kept up to date by their new rows alone."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from headgate.sql.gold_select import GoldSelect, read_of
from headgate.sql.parse import (
    Verbatim,
    aggregates_in,
    as_written,
    column_of,
    innermost_call,
    inside_of,
    is_aggregate,
    is_known,
    name_of_call,
    quoted,
    same_for_spark,
    sql_of,
)
from headgate.sql.select import TABLE_COLUMN, ReadSelect, has_grouping_sets


@dataclass(frozen=True)
class Part:
    """Something to keep for each group: computed from rows, and then from several of itself."""

    suffix: str
    partial: str
    merge: str
    """A SQL aggregate in which `{}` stands for the column that is merged."""


@dataclass(frozen=True)
class Merging:
    """The parts of an aggregate, and its value: `{0}`, `{1}` stand for their columns."""

    parts: tuple[Part, ...]
    value: str = "{0}"


@dataclass(frozen=True)
class NotMergeable:
    """Why groups have to be computed from all of their rows."""

    why: str


@dataclass(frozen=True)
class _Call:
    name: str
    arguments: tuple[str, ...]
    filter: str | None
    ignores_nulls: bool
    literals: tuple[exp.Expr, ...]
    whole: str

    def over(self, aggregate: str, only_if: str | None = None) -> str:
        """Another aggregate of the same rows."""
        asked = [each for each in (self.filter, only_if) if each]
        if not asked:
            return aggregate
        condition = asked[0] if len(asked) == 1 else " AND ".join(f"({each})" for each in asked)
        return f"{aggregate} FILTER(WHERE {condition})"


def how_to_merge(aggregate: exp.Expr) -> Merging | NotMergeable:
    """What to keep for an aggregate, which may have FILTER and the like around it."""
    node = innermost_call(aggregate)
    name = name_of_call(node) or ""
    written = as_written(aggregate)
    if name in _BY_ORDER:
        return NotMergeable(f"{written} depends on the order of rows; {_BY_ORDER[name]} does not")
    if aggregate.find(exp.WithinGroup, exp.Order) or name not in _RULES:
        return NotMergeable(f"{written} cannot be merged")
    if aggregate.find(exp.Distinct) and name not in _OF_DISTINCT:
        hint = "; approx_count_distinct can" if name == "count" else ""
        return NotMergeable(f"{written} cannot be merged{hint}")
    given = node.expressions if isinstance(node, exp.Anonymous) else [node.this.unnest()]
    filters = [each.expression.this for each in aggregate.walk() if isinstance(each, exp.Filter)]
    call = _Call(
        name=name,
        arguments=tuple(map(sql_of, given)),
        filter=sql_of(filters[0]) if filters else None,
        ignores_nulls=aggregate.find(exp.IgnoreNulls) is not None,
        literals=tuple(given),
        whole=sql_of(aggregate),
    )
    return _RULES[name](call) or NotMergeable(f"{written} cannot be merged")


def _merged_by(function: str) -> Callable[[_Call], Merging | None]:
    """Aggregates whose partial results are merged by an aggregate alone."""

    def rule(call: _Call) -> Merging | None:
        return Merging((Part(call.name, call.whole, f"{function}({{}})"),))

    return rule


def _any_value(call: _Call) -> Merging | None:
    ignores = call.ignores_nulls or [each.upper() for each in call.arguments[1:]] == ["TRUE"]
    merge = "any_value({}, true)" if ignores else "any_value({})"
    return Merging((Part("any", call.whole, merge),))


def _average(call: _Call) -> Merging | None:
    """Sum and count are kept as they are, so that nothing is rounded before the division."""
    (of,) = call.arguments
    parts = (
        Part("sum", call.over(f"SUM({of})"), "sum({})"),
        Part("count", call.over(f"COUNT({of})"), "sum({})"),
    )
    return Merging(parts, "try_divide({0}, {1})")


def _distinct_by_sketch(call: _Call) -> Merging | None:
    """Spark's sketches take numbers and texts alone, hence the cast."""
    of, *error = call.arguments
    size = ""
    if error:
        written = call.literals[1]
        if not isinstance(written, exp.Literal) or not 0 < float(written.name) < 1:
            return None
        size = f", {_size_of_sketch(float(written.name))}"
    sketch = call.over(f"HLL_SKETCH_AGG(CAST({of} AS STRING){size})")
    merge = "hll_union_agg({}, false)"
    return Merging((Part("sketch", sketch, merge),), "hll_sketch_estimate({0})")


def _size_of_sketch(error: float) -> int:
    """The logarithm of the number of buckets, by which the error of an estimate falls."""
    return min(max(math.ceil(2 * math.log2(1.04 / error)), 4), 21)


def _merged_sketch(call: _Call) -> Merging | None:
    return Merging((Part("sketch", call.whole, "hll_union_agg({}, false)"),))


def _union_of_sketches(call: _Call) -> Merging | None:
    differing = call.arguments[1] if len(call.arguments) > 1 else "false"
    return Merging((Part("sketch", call.whole, f"hll_union_agg({{}}, {differing})"),))


def _by_ordering(function: str) -> Callable[[_Call], Merging | None]:
    """The value travels with what it is ordered by; of equals, the greater or lesser value wins."""

    def rule(call: _Call) -> Merging | None:
        if len(call.arguments) != 2:
            return None
        value, ordering = call.arguments
        pair = f"NAMED_STRUCT('ordering', {ordering}, 'value', {value})"
        partial = call.over(f"{function.upper()}({pair})", only_if=f"{ordering} IS NOT NULL")
        return Merging((Part("by", partial, f"{function}({{}})"),), "{0}.`value`")

    return rule


_RULES: dict[str, Callable[[_Call], Merging | None]] = {
    **dict.fromkeys(("count", "count_if", "sum"), _merged_by("sum")),
    "min": _merged_by("min"),
    "max": _merged_by("max"),
    **dict.fromkeys(("bool_and", "every"), _merged_by("bool_and")),
    **dict.fromkeys(("any", "bool_or", "some"), _merged_by("bool_or")),
    "bit_and": _merged_by("bit_and"),
    "bit_or": _merged_by("bit_or"),
    "bit_xor": _merged_by("bit_xor"),
    "any_value": _any_value,
    "avg": _average,
    "mean": _average,
    "approx_count_distinct": _distinct_by_sketch,
    "hll_sketch_agg": _merged_sketch,
    "hll_union_agg": _union_of_sketches,
    "max_by": _by_ordering("max"),
    "min_by": _by_ordering("min"),
}

_OF_DISTINCT = frozenset(
    ("min", "max", "bool_and", "every", "any", "bool_or", "some", "bit_and", "bit_or", "any_value")
)
"""Those to which it makes no difference how often they see a value."""

_BY_ORDER = {
    **dict.fromkeys(("first", "first_value"), "min_by(value, time)"),
    **dict.fromkeys(("last", "last_value"), "max_by(value, time)"),
}


def _partial_sql(how: Incremental, source_view: str, extra_keys: Sequence[str]) -> str:
    return _states(how, _from(how, source_view), extra_keys)


def _merge_sql(how: Incremental, states_view: str, extra_keys: Sequence[str]) -> str:
    names = [quoted(name) for name in _names(how, extra_keys)]
    merged = [_named(each.merge, each.name) for each in how.states]
    return f"SELECT {', '.join([*names, *merged])}\nFROM {quoted(states_view)}{_group_by(names)}"


def _outputs_sql(how: Incremental, states: str, extra_keys: Sequence[str]) -> str:
    """`states` is a view in backticks, or a query in brackets."""
    computed = [_named(each.expression, each.name) for each in how.outputs]
    columns = [*map(quoted, extra_keys), *computed, *map(quoted, how.hidden)]
    return f"SELECT {', '.join(columns)}\nFROM {states}"


def _names(how: Incremental, extra_keys: Sequence[str]) -> list[str]:
    return [*extra_keys, *(each.name for each in how.keys)]


def _states(how: Incremental, rows: str, extra_keys: Sequence[str]) -> str:
    partials = [_named(each.partial, each.name) for each in how.states]
    columns = [*map(quoted, extra_keys), *_key_columns(how), *partials]
    grouped = _group_by([*map(quoted, extra_keys), *(each.expression for each in how.keys)])
    return f"SELECT {', '.join(columns)}\n{rows}{grouped}"


def _key_columns(how: Incremental) -> list[str]:
    return [_named(each.expression, each.name) for each in how.keys]


def _named(expression: str, name: str) -> str:
    return quoted(name) if expression == quoted(name) else f"{expression} AS {quoted(name)}"


def _from(how: Incremental, view: str) -> str:
    where = f"\nWHERE {how.where}" if how.where else ""
    return f"FROM {quoted(view)} AS {quoted(how.source)}{how.laterals}{where}"


def _semi_join(other: str, same: Sequence[str]) -> str:
    """Only rows that have one like them in the other; all, where nothing tells rows apart."""
    return f"\nLEFT SEMI JOIN {other} ON {' AND '.join(same)}" if same else ""


def _group_by(expressions: Iterable[str]) -> str:
    written = ", ".join(expressions)
    return f"\nGROUP BY {written}" if written else ""


EACH_TABLE = (TABLE_COLUMN,)


@dataclass(frozen=True)
class Key:
    """A column that tells groups apart."""

    name: str
    expression: str
    """Over rows of the input."""
    visible: bool


@dataclass(frozen=True)
class State:
    """A column that is kept for each group: computed from rows, merged with what was kept before.

    A sum of decimals that is merged has more digits than one of rows: what merges casts it to the
    type that the partial has.
    """

    name: str
    partial: str
    """Over rows of the input."""
    merge: str
    """Over column `name` of several states."""
    visible: str | None
    """The output that it is."""


@dataclass(frozen=True)
class Computed:
    """An output, as an expression over keys and states."""

    name: str
    expression: str


@dataclass(frozen=True)
class Incremental:
    """How the groups of a SELECT are computed from new rows and from what is there.

    Views with states have the extra keys, the keys and the states as columns, and gold tables those
    and the outputs. With the extra key `_table`, rows of many tables are computed at once.
    """

    source: str
    """What the SELECT calls its input."""
    laterals: str
    """What it makes of each row before anything else: `LATERAL VIEW …`."""
    where: str | None
    keys: tuple[Key, ...]
    states: tuple[State, ...]
    outputs: tuple[Computed, ...]

    @property
    def hidden(self) -> tuple[str, ...]:
        """Columns that gold tables have besides the outputs."""
        keys = [each.name for each in self.keys if not each.visible]
        return (*keys, *(each.name for each in self.states if each.visible is None))

    def partial_sql(self, source_view: str, extra_keys: Sequence[str] = EACH_TABLE) -> str:
        """From rows to states."""
        return _partial_sql(self, source_view, extra_keys)

    def merge_sql(self, states_view: str, extra_keys: Sequence[str] = EACH_TABLE) -> str:
        """From several states of each group, new and old ones, to one."""
        return _merge_sql(self, states_view, extra_keys)

    def outputs_sql(self, states_view: str, extra_keys: Sequence[str] = EACH_TABLE) -> str:
        """From states to the columns of the gold table: outputs in order, then what is hidden."""
        return _outputs_sql(self, quoted(states_view), extra_keys)

    def full_sql(self, source_view: str, extra_keys: Sequence[str] = EACH_TABLE) -> str:
        """From all rows to the columns of the gold table, by the same functions."""
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
    """How the groups of a SELECT are kept, or why each has to be computed from all of its rows."""
    read = read_of(select)
    if why := _obstacle(select, read):
        return NotMergeable(why)
    aggregates = {
        sql_of(node): how_to_merge(node)
        for each in read.outputs
        for node in aggregates_in(each.node)
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


def _obstacle(select: GoldSelect, read: ReadSelect) -> str | None:
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
        return "it has no aggregates"
    if select.changing:
        return f"{select.changing.lower()} is not deterministic"
    for output in read.outputs:
        for name in _unknown_functions(output.node, read.keys):
            return f"{name} is an unknown function and may be an aggregate"
    return None


def _unknown_functions(node: exp.Expr, keys: Iterable[exp.Expr]) -> Iterable[str]:
    """Functions of somebody's own that take columns which are not grouped by."""
    if is_aggregate(node) or same_for_spark(node) in {same_for_spark(each) for each in keys}:
        return
    name = name_of_call(node)
    if name is not None and not is_known(name) and _has_ungrouped(node, keys):
        yield name
    for child in node.iter_expressions():
        yield from _unknown_functions(child, keys)


def _has_ungrouped(node: exp.Expr, keys: Iterable[exp.Expr]) -> bool:
    if is_aggregate(node) or same_for_spark(node) in {same_for_spark(each) for each in keys}:
        return False
    return isinstance(node, exp.Column) or any(
        _has_ungrouped(child, keys) for child in node.iter_expressions()
    )


@dataclass
class _Plan:
    """Gives names to keys and states; one that is an output has its name, others begin with `_`."""

    read: ReadSelect
    merging: dict[str, Merging]
    keys: dict[str, Key] = field(default_factory=dict)
    states: list[State] = field(default_factory=list)
    _taken: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        own = (TABLE_COLUMN, "route")
        outputs = [each.name for each in self.read.outputs]
        self._taken = {name.lower() for name in (*own, *outputs, *self.read.columns)}
        shown_by = {same_for_spark(each.node): each.name for each in reversed(self.read.outputs)}
        for node in self.read.keys:
            # A constant tells no groups apart, and a number would mean an output.
            if node.find(exp.Column):
                same = same_for_spark(node)
                shown = shown_by.get(same)
                name = shown or self._hidden(f"_key_{re.sub(r'[^A-Za-z0-9_]+', '_', node.name)}")
                self.keys[same] = Key(name, sql_of(node), shown is not None)
        for output in self.read.outputs:
            how = self.merging.get(sql_of(output.node))
            if how is not None and how.value == "{0}":
                self._state(how.parts[0], output.name)

    def over_states(self, output: str, node: exp.Expr) -> str:
        """An output by columns that are kept."""
        return sql_of(self._over_states(output, exp.Paren(this=node.copy())).this)

    def _over_states(self, output: str, node: exp.Expr) -> exp.Expr:
        for child in list(node.iter_expressions()):
            # A bare name is a part of something, or a variable that is called like a key.
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
        """The column of the key that an expression is, or the field inside of one."""
        known: list[tuple[exp.Expr, list[exp.Expr]]] = [(node, [])]
        known += inside_of(node) if isinstance(node, exp.Column) else []
        for each, rest in known:
            if key := self.keys.get(same_for_spark(each)):
                return column_of([exp.to_identifier(key.name, quoted=True), *rest])
        return None

    def _named(self, part: Part, output: str) -> str:
        """The state that holds a part; what two aggregates need is kept once."""
        for state in self.states:
            if (state.partial, state.merge) == (
                part.partial,
                part.merge.format(quoted(state.name)),
            ):
                return state.name
        return self._state(part, None, f"_{output}_{part.suffix}")

    def _state(self, part: Part, output: str | None, hidden: str = "") -> str:
        name = output or self._hidden(hidden)
        self.states.append(State(name, part.partial, part.merge.format(quoted(name)), output))
        return name

    def _hidden(self, wanted: str) -> str:
        """A name that no output and no column has."""
        name, number = wanted, 1
        while name.lower() in self._taken:
            number += 1
            name = f"{wanted}_{number}"
        self._taken.add(name.lower())
        return name


def _parsed(text: str) -> exp.Expr:
    (tree,) = Verbatim().parse(text)
    if tree is None:
        raise AssertionError(f"no expression: {text}")
    return tree
