"""The rule of an expectation, as what asks it needs to know it."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.pipeline.sql.columns import columns_in, distinct_names, root_of
from headgate.pipeline.sql.dialect import sql_of
from headgate.pipeline.sql.read_rule import read_rule


@dataclass(frozen=True)
class Rule:
    """An expression that is true of good rows; of one for which it is null it is not."""

    sql: str
    columns: frozenset[str]
    """The columns that it is about, as it writes them."""

    @property
    def passes(self) -> str:
        """The same as a condition that is never null."""
        return f"({self.sql}) IS TRUE"


def rule(expression: str) -> Rule:
    """What a declared rule is. Raises `InvalidPipeline` if it is none."""
    tree = read_rule(expression)
    return Rule(sql_of(tree), distinct_names(map(root_of, columns_in([tree]))))
