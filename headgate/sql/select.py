"""Analyzes a SELECT over the tables of a pipeline, as far as possible without their columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from sqlglot import exp

from headgate.errors import InvalidPipeline, did_you_mean, shown
from headgate.sql.expressions import (
    aggregates_in,
    call_name,
    columns_in,
    distinct_names,
    enclosing_columns,
    innermost_call,
    is_aggregate,
    is_known,
    is_qualified,
    refuse_beyond_row,
    refuse_unsafe,
    root_name,
    without_qualifier,
)
from headgate.sql.parse import (
    BEFORE_OUTPUTS,
    as_written,
    bad_sql,
    normalized,
    parse_outputs,
    parse_select,
    position,
    refuse_deep_nesting,
    shifted,
)

TABLE_COLUMN = "_table"
"""The column with the table of each row, while derived tables are computed."""

# Characters that Delta does not allow in a name.
_NOT_IN_NAMES = re.compile(r"[ ,;{}()\n\t=]")


@dataclass(frozen=True)
class Output:
    """A column of the result and its expression."""

    name: str
    node: exp.Expr


def analyze_outputs(expressions: Iterable[exp.Expr]) -> tuple[Output, ...]:
    outputs = tuple(Output(_name_of(each), each.unalias()) for each in expressions)
    if not outputs:
        raise bad_sql("selects nothing")
    _refuse_duplicate_names(outputs)
    _refuse_ambiguous_names(outputs)
    return outputs


def _name_of(node: exp.Expr) -> str:
    if node.is_star:
        hint = "list the columns: those of the tables change"
        raise bad_sql("selects `*`", hint, position(node))
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
            raise bad_sql(f"has a column without a name: {shown(given)}", hint, position(node))
    if not name or _NOT_IN_NAMES.search(name):
        hint = "Delta does not allow spaces, brackets, commas, semicolons and `=` in names"
        raise bad_sql(f"cannot name a column {shown(name)}", hint, position(node))
    if name.lower() == TABLE_COLUMN:
        raise bad_sql(f"cannot name a column `{name}`", "Headgate uses that one", position(node))
    return name


def _refuse_duplicate_names(outputs: tuple[Output, ...]) -> None:
    seen: set[str] = set()
    for output in outputs:
        if output.name.lower() in seen:
            hint = "give one of them another name with `AS`"
            raise bad_sql(
                f"has two columns called {shown(output.name)}", hint, position(output.node)
            )
        seen.add(output.name.lower())


def _refuse_ambiguous_names(outputs: tuple[Output, ...]) -> None:
    """Spark resolves a name to an earlier output only if no table has a column of that name."""
    before: dict[str, Output] = {}
    for output in outputs:
        for column in columns_in([output.node]):
            meant = before.get(root_name(column).lower())
            if meant is None or is_qualified(column):
                continue
            if not uses(meant.node, meant.name):
                raise bad_sql(
                    f"has {shown(root_name(column))}, which may be an earlier output or a column",
                    "repeat its expression, or rename that output",
                    position(column),
                )
        before[output.name.lower()] = output


def uses(node: exp.Expr, name: str) -> bool:
    """Return whether an expression uses the input column of that name."""
    return any(root_name(each).lower() == name.lower() for each in columns_in([node]))


def has_grouping_sets(tree: exp.Select) -> bool:
    group = tree.args.get("group")
    return group is not None and (
        any(group.args.get(key) for key in ("rollup", "cube", "grouping_sets", "totals"))
        or any(
            isinstance(each, exp.Rollup | exp.Cube | exp.GroupingSets) for each in group.expressions
        )
    )


def group_keys(tree: exp.Select, outputs: Sequence[Output]) -> tuple[exp.Expr, ...]:
    """Return the expressions that rows are grouped by, each once."""
    group = tree.args.get("group")
    if group is None:
        return ()
    if group.args.get("all"):
        found = [each.node for each in outputs if not any(aggregates_in(each.node))]
    elif not group.expressions:
        raise bad_sql("groups by nothing", "write columns after `GROUP BY`, or leave it out")
    else:
        found = [_grouped_expression(each, tree, outputs) for each in _flattened(group.expressions)]
    for key in found:
        for aggregate in aggregates_in(key):
            raise bad_sql(
                f"groups by an aggregate: {shown(as_written(aggregate))}", inside=position(key)
            )
    return tuple({normalized(each): each for each in found}.values())


def _flattened(expressions: Iterable[exp.Expr]) -> Iterator[exp.Expr]:
    """Yield expressions without the parentheses around some or all of them."""
    for each in expressions:
        if isinstance(each, exp.Tuple | exp.Paren):
            yield from _flattened(each.expressions or [each.this])
        else:
            yield each


def _grouped_expression(written: exp.Expr, tree: exp.Select, outputs: Sequence[Output]) -> exp.Expr:
    if isinstance(written, exp.Literal) and written.is_int:
        number = int(written.name)
        if not 1 <= number <= len(outputs):
            hint = f"there are {len(outputs)} columns"
            raise bad_sql(f"groups by column {number}", hint, position(written))
        return outputs[number - 1].node
    if not isinstance(written, exp.Column) or len(written.parts) > 1:
        return written
    if is_qualified(written):
        return written
    named = [each for each in outputs if each.name.lower() == written.name.lower()]
    if not named or normalized(named[0].node) == normalized(written):
        return written
    if any(uses(each, written.name) for each in _other_expressions(tree, outputs)):
        raise bad_sql(
            f"groups by {shown(written.name)}, which may be the output or the column",
            "write the expression itself or, for the column, its table before it:"
            f" `silver.{written.name}`",
            position(written),
        )
    return named[0].node


def _other_expressions(tree: exp.Select, outputs: Sequence[Output]) -> list[exp.Expr]:
    where = tree.args.get("where")
    return [*(each.node for each in outputs), *([where] if where else [])]


def refuse_ungrouped_columns(outputs: Sequence[Output], keys: Sequence[exp.Expr]) -> None:
    """Raise if a column is neither grouped by nor inside of an aggregate."""
    known = {normalized(each) for each in keys}
    for output in outputs:
        for column in _ungrouped(output.node, known):
            hint = f"add it to `GROUP BY`, or aggregate it: `max({as_written(column)})`"
            raise bad_sql(
                f"has {shown(as_written(column))}, which is neither grouped by nor aggregated",
                hint,
                position(column),
            )


def _ungrouped(node: exp.Expr, keys: set[str]) -> Iterator[exp.Expr]:
    if is_aggregate(node) or normalized(node) in keys:
        return
    name = call_name(node)
    if isinstance(node, exp.Window) or (name is not None and not is_known(name)):
        return
    if isinstance(node, exp.Column):
        if not any(normalized(each) in keys for each, _ in enclosing_columns(node)):
            yield node
        return
    for child in node.iter_expressions():
        yield from _ungrouped(child, keys)


_AFTER_OUTPUTS = ("having", "qualify", "order", "sort", "cluster", "distribute")
"""Clauses in which a name may refer to an output."""


@dataclass(frozen=True)
class AnalyzedSelect:
    """A parsed SELECT, with columns that are not qualified by their table."""

    text: str
    tree: exp.Select
    outputs: tuple[Output, ...]
    keys: tuple[exp.Expr, ...]
    simple: bool
    """Whether it reads a single table, once."""
    aggregated: bool

    @property
    def columns(self) -> frozenset[str]:
        """The columns of the tables that it uses; with subqueries, all names."""
        return distinct_names(_input_columns(self))

    @property
    def tables(self) -> list[exp.Table]:
        """The tables that it reads, without the names of its own WITH."""
        own = {each.alias.lower() for each in self.tree.find_all(exp.CTE)}
        return [each for each in self.tree.find_all(exp.Table) if each.name.lower() not in own]


@lru_cache(maxsize=256)
@refuse_deep_nesting
def analyze_select(text: str) -> AnalyzedSelect:
    """Parse and check a SELECT. The result is shared: its tree must not be changed."""
    tree = parse_select(text)
    refuse_unsafe(tree)
    simple = _is_simple(tree)
    if simple:
        _remove_qualifiers(tree)
    outputs = analyze_outputs(tree.expressions)
    _refuse_misplaced_aggregates(tree)
    keys = () if has_grouping_sets(tree) else group_keys(tree, outputs)
    aggregated = any(tree.args.get(key) for key in ("group", "having")) or any(
        any(aggregates_in(each.node)) for each in outputs
    )
    if simple and aggregated and not has_grouping_sets(tree):
        refuse_ungrouped_columns(outputs, keys)
    return AnalyzedSelect(text, tree, outputs, keys, simple, aggregated)


def check_tables(text: str, source: str) -> None:
    """Raise if a SELECT reads anything but the tables that the pipeline lands."""
    read = analyze_select(text)
    hint = f"`FROM {source}` means the landed tables"
    if any(each.alias.lower() == source for each in read.tree.find_all(exp.CTE)):
        raise bad_sql(f"gives another query the name `{source}`", hint)
    for table in read.tables:
        name = as_written(table.this)
        if table.db or name.lower() != source:
            given = as_written(table).split(" AS ")[0]
            meant = did_you_mean(name, [source])
            raise bad_sql(f"reads {shown(given)}, not `{source}`", meant or hint, position(table))
        if table.args.get("version") or table.args.get("sample") or table.find(exp.TableSample):
            raise bad_sql(
                f"reads only some of `{source}`",
                "remove the version or the sample",
                position(table),
            )
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


def _remove_qualifiers(tree: exp.Select) -> None:
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
            f"has an aggregate in WHERE: {shown(as_written(aggregate))}",
            hint,
            position(aggregate),
        )
    for output in tree.expressions:
        for aggregate in aggregates_in(output):
            call = innermost_call(aggregate)
            for inner in (each for each in call.walk() if each is not call):
                if is_aggregate(inner):
                    given = shown(as_written(aggregate))
                    raise bad_sql(
                        f"has an aggregate of an aggregate: {given}", inside=position(aggregate)
                    )


def _input_columns(read: AnalyzedSelect) -> Iterator[str]:
    if not read.simple:
        relations = frozenset(
            each.alias_or_name.lower() for each in read.tree.find_all(exp.Table, exp.DerivedTable)
        )
        for column in read.tree.find_all(exp.Column):
            yield root_name(without_qualifier(column, relations))
        return
    tree, laterals = read.tree, read.tree.args.get("laterals") or []
    made = {name.name.lower() for each in laterals for name in each.args["alias"].columns}
    where, windows = tree.args.get("where"), tree.args.get("windows") or []
    asked = [*(each.node for each in read.outputs), *read.keys, *laterals, *windows]
    for column in columns_in([*asked, *([where] if where else [])]):
        if root_name(column).lower() not in made:
            yield root_name(column)
    named = made | {each.name.lower() for each in read.outputs}
    for column in columns_in(tree.args[key] for key in _AFTER_OUTPUTS if tree.args.get(key)):
        if root_name(column).lower() not in named:
            yield root_name(column)
    if has_grouping_sets(tree):
        yield from (root_name(each) for each in columns_in([tree.args["group"]]))


@lru_cache(maxsize=256)
@refuse_deep_nesting
def analyze_columns(text: str) -> tuple[Output, ...]:
    """Parse and check columns, as between SELECT and FROM, that need one row at a time."""
    try:
        expressions = parse_outputs(text)
        refuse_beyond_row(expressions, changing=True)
        return analyze_outputs(expressions)
    except InvalidPipeline as error:
        inside = shifted(error.inside, len(BEFORE_OUTPUTS))
        raise bad_sql(error.message, error.hint, inside) from None
