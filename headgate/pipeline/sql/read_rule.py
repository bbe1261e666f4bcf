"""An expression that is true of good rows."""

from __future__ import annotations

from functools import lru_cache

from sqlglot import exp, parse_one
from sqlglot.dialects.spark import Spark
from sqlglot.optimizer.annotate_types import annotate_types

from headgate.pipeline.sql.dialect import as_written
from headgate.pipeline.sql.parse import bad_sql, not_too_deep, parse_expression
from headgate.pipeline.sql.refuse import refuse_more_than_rows
from headgate.pipeline.wording import shown

_ARITHMETIC = (
    exp.Add,
    exp.Sub,
    exp.Mul,
    exp.Div,
    exp.IntDiv,
    exp.Mod,
    exp.Neg,
    exp.DPipe,
    exp.BitwiseAnd,
    exp.BitwiseOr,
    exp.BitwiseXor,
    exp.BitwiseNot,
)
_PERHAPS = (exp.DType.BOOLEAN, exp.DType.UNKNOWN, exp.DType.NULL)


@lru_cache(maxsize=256)
@not_too_deep
def read_rule(text: str) -> exp.Expr:
    """The expression, if a row alone decides it and it may be true or false."""
    tree = parse_expression(text)
    refuse_more_than_rows([tree])
    if tree.find(exp.Column) is None:
        raise bad_sql(f"asks nothing of a row: {shown(as_written(tree))}", "name a column in it")
    if not _may_be_true(tree, text):
        hint = "compare it with something: `score >= 0`, `user_name IS NOT NULL`"
        raise bad_sql(f"is neither true nor false: {shown(as_written(tree))}", hint)
    return tree


def _may_be_true(tree: exp.Expr, text: str) -> bool:
    """Whether what is known of the functions in it leaves that open."""
    known = annotate_types(parse_one(text, dialect=Spark), dialect=Spark)
    kind = known.type.this if known.type is not None else exp.DType.UNKNOWN
    return kind in _PERHAPS and not isinstance(tree.unnest(), _ARITHMETIC)
