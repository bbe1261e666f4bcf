"""Spark's SQL with every function left as it is written.

sqlglot knows functions by meaning and may write another one of the same meaning; what Spark is
given here has to be what the declaration says, so that calls are only names with arguments.
"""

from __future__ import annotations

from typing import ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser

_SYNTAX_OF_THEIR_OWN = ("CAST", "EXTRACT", "OVERLAY", "POSITION", "SUBSTRING", "TRIM", "TRY_CAST")


class _VerbatimParser(SparkParser):
    FUNCTIONS: ClassVar = {}
    FUNCTION_PARSERS: ClassVar = {
        name: SparkParser.FUNCTION_PARSERS[name] for name in _SYNTAX_OF_THEIR_OWN
    }


class Verbatim(Spark):
    """The dialect that declarations are parsed and written in."""

    Parser = _VerbatimParser


def sql_of(node: exp.Expr) -> str:
    """A part of a declaration as Spark takes it, with every name in backticks."""
    return node.sql(dialect=Verbatim, identify=True, comments=False)


def as_written(node: exp.Expr) -> str:
    """The same as a message shows it."""
    return node.sql(dialect=Verbatim, comments=False, normalize_functions=False)


def same_for_spark(node: exp.Expr) -> str:
    """A text that two expressions share if Spark takes them as one: it reads names in any case."""
    copy = node.copy()
    for name in copy.find_all(exp.Identifier):
        name.set("this", name.name.lower())
    return sql_of(copy)


def quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
