"""A rule about the values of one row: SQL as Spark has it, evaluated without Spark.

What a rule asks of a value that is not there is unknown, as always in SQL, and so is what cannot be
computed: a division by zero, a text that is no number, a comparison of types that have none. No row
makes a rule an error.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from headgate.errors import PipelineFileError
from headgate.sql.condition_compare import truth
from headgate.sql.condition_values import value_of
from headgate.sql.rules import UnusableRule, expression_of


@dataclass(frozen=True)
class Condition:
    """A rule, parsed once for many batches."""

    text: str
    columns: frozenset[str]
    """The columns it is about, by their top names."""
    _expression: exp.Expr = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> Condition:
        if (why := check_condition(text)) is not None:
            raise PipelineFileError("bad-value", f"the rule `{text}` cannot be checked: {why}")
        return _condition(text)

    def holds(self, rows: pa.RecordBatch) -> pa.BooleanArray:
        """For each row whether it is so; null where nobody knows."""
        found = truth(value_of(self._expression, rows))
        return pa.repeat(found, len(rows)) if isinstance(found, pa.Scalar) else found


def check_condition(text: str) -> str | None:
    """Why a text cannot be a rule; None if it can."""
    try:
        _condition(text)
    except UnusableRule as error:
        return str(error)
    return None


@lru_cache(maxsize=1024)
def _condition(text: str) -> Condition:
    expression = expression_of(text)
    for pattern in expression.find_all(exp.RegexpLike):
        try:
            pc.match_substring_regex(pa.array([""]), str(pattern.expression.name))
        except pa.ArrowInvalid as error:
            raise UnusableRule(f"a pattern that cannot be used: {error}") from error
    columns = frozenset(column.parts[0].name for column in expression.find_all(exp.Column))
    return Condition(text, columns, expression)
