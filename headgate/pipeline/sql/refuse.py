"""What no SQL of a pipeline may have, wherever it stands."""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from headgate.pipeline.sql.dialect import as_written
from headgate.pipeline.sql.functions import CHANGING, RUNS_CODE, calls_in, is_aggregate
from headgate.pipeline.sql.parse import bad_sql, place_of
from headgate.pipeline.wording import shown


def refuse_everywhere(tree: exp.Expr) -> None:
    """Parameters, which nobody fills in, and calls of programs."""
    for parameter in tree.find_all(exp.Placeholder, exp.Parameter):
        hint = "write the value itself; names of tables and columns are the same for every route"
        raise bad_sql(f"has a parameter: {shown(as_written(parameter))}", hint, place_of(parameter))
    if program := next(tree.find_all(exp.QueryTransform), None):
        raise bad_sql("runs a program with TRANSFORM", inside=place_of(program))
    for call in calls_in(tree, RUNS_CODE):
        raise bad_sql(f"runs code of Java: {shown(as_written(call))}", inside=place_of(call))


def refuse_more_than_rows(trees: Iterable[exp.Expr], *, changing: bool = False) -> None:
    """What cannot be said of one row alone; `changing` lets in what differs from time to time."""
    for tree in trees:
        refuse_everywhere(tree)
        for node in tree.walk():
            if kind := _beyond_a_row(node):
                raise bad_sql(f"has {kind}: {shown(as_written(node))}", _OF_A_ROW, place_of(node))
        for call in calls_in(tree, CHANGING) if not changing else ():
            hint = "the same row has to give the same answer whenever it is asked"
            raise bad_sql(f"depends on {shown(as_written(call))}", hint, place_of(call))


_OF_A_ROW = "it is asked for each row by itself"


def _beyond_a_row(node: exp.Expr) -> str | None:
    match node:
        case exp.Window():
            return "a window function"
        case exp.Query():
            return "a query inside"
        case _ if is_aggregate(node):
            return "an aggregate"
    return None
