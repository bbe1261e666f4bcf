"""The columns that a SELECT gives, each with a name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from sqlglot import exp

from headgate.pipeline.sql.columns import columns_in, is_surely_of_input, root_of
from headgate.pipeline.sql.dialect import as_written
from headgate.pipeline.sql.parse import bad_sql, place_of
from headgate.pipeline.wording import shown

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
        hint = "write the columns out: those of the tables change"
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
        hint = "Delta allows no spaces, brackets, commas, semicolons and `=` in names"
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
                    "repeat what it stands for, or give that output another name",
                    place_of(column),
                )
        before[output.name.lower()] = output


def uses(node: exp.Expr, name: str) -> bool:
    """Whether an expression uses a column of its input of that name."""
    return any(root_of(each).lower() == name.lower() for each in columns_in([node]))
