"""A SELECT over the tables of a pipeline, checked as far as that goes without their columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from sqlglot import exp

from headgate.errors import InvalidPipeline, did_you_mean, shown
from headgate.sql.parse import (
    BEFORE_OUTPUTS,
    aggregates_in,
    as_written,
    bad_sql,
    columns_in,
    distinct_names,
    innermost_call,
    inside_of,
    is_aggregate,
    is_known,
    is_surely_of_input,
    name_of_call,
    not_too_deep,
    parse_outputs,
    parse_select,
    place_of,
    refuse_everywhere,
    refuse_more_than_rows,
    root_of,
    same_for_spark,
    shifted,
    without_qualifier,
)

TABLE_COLUMN = "_table"
"""Says of each row which table it came from, while gold is made."""

# What Delta does not allow in a name.
_NOT_IN_NAMES = re.compile(r"[ ,;{}()\n\t=]")


@dataclass(frozen=True)
class Output:
    """A column of the result, and what it is made of."""

    name: str
    node: exp.Expr


def read_outputs(expressions: Iterable[exp.Expr]) -> tuple[Output, ...]:
    outputs = tuple(Output(_name_of(each), each.unalias()) for each in expressions)
    if not outputs:
        raise bad_sql("selects nothing")
    _refuse_twins(outputs)
    _refuse_names_of_outputs(outputs)
    return outputs


def _name_of(node: exp.Expr) -> str:
    if node.is_star:
        hint = "list the columns: those of the tables change"
        raise bad_sql("selects `*`", hint, place_of(node))
    match node:
        case exp.Alias():
            name = node.alias
        case exp.Column():
            name = node.name
        case exp.Dot() if isinstance(node.expression, exp.Identifier):
            name = node.expression.name
        case _:
            given = as_written(node)
            hint = f"give it one: `{given} AS …`" if len(given) <= 40 else "give it one with `AS`"
            raise bad_sql(f"has a column without a name: {shown(given)}", hint, place_of(node))
    if not name or _NOT_IN_NAMES.search(name):
        hint = "Delta does not allow spaces, brackets, commas, semicolons and `=` in names"
        raise bad_sql(f"cannot name a column {shown(name)}", hint, place_of(node))
    if name.lower() == TABLE_COLUMN:
        raise bad_sql(f"cannot name a column `{name}`", "Headgate uses that one", place_of(node))
    return name


def _refuse_twins(outputs: tuple[Output, ...]) -> None:
    seen: set[str] = set()
    for output in outputs:
        if output.name.lower() in seen:
            hint = "give one of them another name with `AS`"
            raise bad_sql(
                f"has two columns called {shown(output.name)}", hint, place_of(output.node)
            )
        seen.add(output.name.lower())


def _refuse_names_of_outputs(outputs: tuple[Output, ...]) -> None:
    """Spark takes a name as an output before it only if no table has a column of that name."""
    before: dict[str, Output] = {}
    for output in outputs:
        for column in columns_in([output.node]):
            meant = before.get(root_of(column).lower())
            if meant is None or is_surely_of_input(column):
                continue
            if not uses(meant.node, meant.name):
                raise bad_sql(
                    f"has {shown(root_of(column))}, which may be the output before it or a column",
                    "repeat its expression, or rename that output",
                    place_of(column),
                )
        before[output.name.lower()] = output


def uses(node: exp.Expr, name: str) -> bool:
    """Whether an expression uses a column of its input of that name."""
    return any(root_of(each).lower() == name.lower() for each in columns_in([node]))


def has_grouping_sets(tree: exp.Select) -> bool:
    group = tree.args.get("group")
    return group is not None and (
        any(group.args.get(key) for key in ("rollup", "cube", "grouping_sets", "totals"))
        or any(
            isinstance(each, exp.Rollup | exp.Cube | exp.GroupingSets) for each in group.expressions
        )
    )


def group_keys(tree: exp.Select, outputs: Sequence[Output]) -> tuple[exp.Expr, ...]:
    """The expressions that rows are grouped by, each once."""
    group = tree.args.get("group")
    if group is None:
        return ()
    if group.args.get("all"):
        found = [each.node for each in outputs if not any(aggregates_in(each.node))]
    elif not group.expressions:
        raise bad_sql("groups by nothing", "write columns after `GROUP BY`, or leave it out")
    else:
        found = [_meant(each, tree, outputs) for each in _written(group.expressions)]
    for key in found:
        for aggregate in aggregates_in(key):
            raise bad_sql(
                f"groups by an aggregate: {shown(as_written(aggregate))}", inside=place_of(key)
            )
    return tuple({same_for_spark(each): each for each in found}.values())


def _written(expressions: Iterable[exp.Expr]) -> Iterator[exp.Expr]:
    """Without brackets around some or all of them."""
    for each in expressions:
        if isinstance(each, exp.Tuple | exp.Paren):
            yield from _written(each.expressions or [each.this])
        else:
            yield each


def _meant(written: exp.Expr, tree: exp.Select, outputs: Sequence[Output]) -> exp.Expr:
    if isinstance(written, exp.Literal) and written.is_int:
        number = int(written.name)
        if not 1 <= number <= len(outputs):
            hint = f"there are {len(outputs)} columns"
            raise bad_sql(f"groups by column {number}", hint, place_of(written))
        return outputs[number - 1].node
    if not isinstance(written, exp.Column) or len(written.parts) > 1:
        return written
    if is_surely_of_input(written):
        return written
    named = [each for each in outputs if each.name.lower() == written.name.lower()]
    if not named or same_for_spark(named[0].node) == same_for_spark(written):
        return written
    if any(uses(each, written.name) for each in _elsewhere(tree, outputs)):
        raise bad_sql(
            f"groups by {shown(written.name)}, which may be the output or the column",
            "write the expression itself or, for the column, its table before it:"
            f" `silver.{written.name}`",
            place_of(written),
        )
    return named[0].node


def _elsewhere(tree: exp.Select, outputs: Sequence[Output]) -> list[exp.Expr]:
    where = tree.args.get("where")
    return [*(each.node for each in outputs), *([where] if where else [])]


def refuse_ungrouped(outputs: Sequence[Output], keys: Sequence[exp.Expr]) -> None:
    """A column of a group has many values, unless the rows are grouped by it."""
    known = {same_for_spark(each) for each in keys}
    for output in outputs:
        for column in _ungrouped(output.node, known):
            hint = f"add it to `GROUP BY`, or aggregate it: `max({as_written(column)})`"
            raise bad_sql(
                f"has {shown(as_written(column))}, which is neither grouped by nor aggregated",
                hint,
                place_of(column),
            )


def _ungrouped(node: exp.Expr, keys: set[str]) -> Iterator[exp.Expr]:
    if is_aggregate(node) or same_for_spark(node) in keys:
        return
    name = name_of_call(node)
    if isinstance(node, exp.Window) or (name is not None and not is_known(name)):
        return
    if isinstance(node, exp.Column):
        if not any(same_for_spark(each) in keys for each, _ in inside_of(node)):
            yield node
        return
    for child in node.iter_expressions():
        yield from _ungrouped(child, keys)


_AFTER_OUTPUTS = ("having", "qualify", "order", "sort", "cluster", "distribute")
"""Clauses in which a name may be that of an output."""


@dataclass(frozen=True)
class ReadSelect:
    """The parts of a SELECT; its columns stand without the name of their table."""

    text: str
    tree: exp.Select
    outputs: tuple[Output, ...]
    keys: tuple[exp.Expr, ...]
    simple: bool
    """Whether it reads a single table, once."""
    aggregated: bool

    @property
    def columns(self) -> frozenset[str]:
        """The columns of the tables that it uses; of queries inside, all names."""
        return distinct_names(_input_columns(self))

    @property
    def tables(self) -> list[exp.Table]:
        """Where it reads, names of its own WITH left out."""
        own = {each.alias.lower() for each in self.tree.find_all(exp.CTE)}
        return [each for each in self.tree.find_all(exp.Table) if each.name.lower() not in own]


@lru_cache(maxsize=256)
@not_too_deep
def read_select(text: str) -> ReadSelect:
    """The parts of a SELECT. Nobody may change its tree: others are given the same."""
    tree = parse_select(text)
    refuse_everywhere(tree)
    simple = _is_simple(tree)
    if simple:
        _leave_out_qualifiers(tree)
    outputs = read_outputs(tree.expressions)
    _refuse_misplaced_aggregates(tree)
    keys = () if has_grouping_sets(tree) else group_keys(tree, outputs)
    aggregated = any(tree.args.get(key) for key in ("group", "having")) or any(
        any(aggregates_in(each.node)) for each in outputs
    )
    if simple and aggregated and not has_grouping_sets(tree):
        refuse_ungrouped(outputs, keys)
    return ReadSelect(text, tree, outputs, keys, simple, aggregated)


def check_tables(text: str, source: str) -> None:
    """Refuses to read anything but the tables that the pipeline lands."""
    read = read_select(text)
    hint = f"`FROM {source}` means the landed tables"
    if any(each.alias.lower() == source for each in read.tree.find_all(exp.CTE)):
        raise bad_sql(f"uses the name `{source}` for something else", hint)
    for table in read.tables:
        name = as_written(table.this)
        if table.db or name.lower() != source:
            given = as_written(table).split(" AS ")[0]
            meant = did_you_mean(name, [source])
            raise bad_sql(f"reads {shown(given)}, not `{source}`", meant or hint, place_of(table))
        if table.args.get("version") or table.args.get("sample") or table.find(exp.TableSample):
            raise bad_sql(f"reads only some of `{source}`", "leave that out", place_of(table))
    if not read.tables:
        raise bad_sql(f"does not read `{source}`", hint)


def _is_simple(tree: exp.Select) -> bool:
    source = tree.args.get("from_")
    return (
        source is not None
        and isinstance(source.this, exp.Table)
        and not source.this.args.get("pivots")
        and not tree.args.get("joins")
        and sum(1 for _ in tree.find_all(exp.Query)) == 1
    )


def _leave_out_qualifiers(tree: exp.Select) -> None:
    laterals = [each.args["alias"].name for each in tree.args.get("laterals") or () if each.alias]
    names = frozenset(
        name.lower() for name in (tree.args["from_"].this.alias_or_name, *laterals) if name
    )
    for column in list(tree.find_all(exp.Column)):
        bare = without_qualifier(column, names)
        if bare is not column:
            column.replace(bare)


def _refuse_misplaced_aggregates(tree: exp.Select) -> None:
    for aggregate in aggregates_in(tree.args.get("where") or exp.Null()):
        hint = "WHERE filters rows; `HAVING` filters groups"
        raise bad_sql(
            f"has an aggregate in WHERE: {shown(as_written(aggregate))}", hint, place_of(aggregate)
        )
    for output in tree.expressions:
        for aggregate in aggregates_in(output):
            call = innermost_call(aggregate)
            for inner in (each for each in call.walk() if each is not call):
                if is_aggregate(inner):
                    given = shown(as_written(aggregate))
                    raise bad_sql(
                        f"has an aggregate of an aggregate: {given}", inside=place_of(aggregate)
                    )


def _input_columns(read: ReadSelect) -> Iterator[str]:
    if not read.simple:
        relations = frozenset(
            each.alias_or_name.lower() for each in read.tree.find_all(exp.Table, exp.DerivedTable)
        )
        for column in read.tree.find_all(exp.Column):
            yield root_of(without_qualifier(column, relations))
        return
    tree, laterals = read.tree, read.tree.args.get("laterals") or []
    made = {name.name.lower() for each in laterals for name in each.args["alias"].columns}
    where, windows = tree.args.get("where"), tree.args.get("windows") or []
    asked = [*(each.node for each in read.outputs), *read.keys, *laterals, *windows]
    for column in columns_in([*asked, *([where] if where else [])]):
        if root_of(column).lower() not in made:
            yield root_of(column)
    named = made | {each.name.lower() for each in read.outputs}
    for column in columns_in(tree.args[key] for key in _AFTER_OUTPUTS if tree.args.get(key)):
        if root_of(column).lower() not in named:
            yield root_of(column)
    if has_grouping_sets(tree):
        yield from (root_of(each) for each in columns_in([tree.args["group"]]))


@lru_cache(maxsize=256)
@not_too_deep
def read_columns(text: str) -> tuple[Output, ...]:
    """What stands between SELECT and FROM, if a row alone decides it."""
    try:
        expressions = parse_outputs(text)
        refuse_more_than_rows(expressions, changing=True)
        return read_outputs(expressions)
    except InvalidPipeline as error:
        inside = shifted(error.inside, len(BEFORE_OUTPUTS))
        raise bad_sql(error.message, error.hint, inside) from None
