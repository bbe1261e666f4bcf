"""What a SELECT groups by, written out: numbers, names of outputs and ALL are resolved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sqlglot import exp

from headgate.pipeline.sql.columns import inside_of, is_surely_of_input
from headgate.pipeline.sql.dialect import as_written, same_for_spark
from headgate.pipeline.sql.functions import aggregates_in, is_aggregate, is_known, name_of_call
from headgate.pipeline.sql.outputs import Output, uses
from headgate.pipeline.sql.parse import bad_sql, place_of
from headgate.pipeline.wording import shown


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
            hint = f"add it to `GROUP BY`, or take one of them: `max({as_written(column)})`"
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
