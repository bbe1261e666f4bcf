"""Rules for the rows of tables, and what happens to rows that fail them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field

from headgate.config.gold import may_share_a_name
from headgate.config.model import Declared, Path, refused_below
from headgate.errors import InvalidPipeline, did_you_mean, listed, shown

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


def _check_rule(rule: str) -> str:
    from headgate.sql.parse import bad_sql
    from headgate.sql.rules import UnusableRule, parse_condition, parse_rule

    parse_condition(rule)
    try:
        parse_rule(rule)
    except UnusableRule as error:
        hint = "rules are checked without Spark: the guide to expectations lists what they support"
        raise bad_sql(f"cannot be checked: {error}", hint, error.inside) from None
    return rule


class Expectation(Declared):
    """A rule for rows: a row passes only where it is true, not where it is null."""

    rule: Annotated[str, AfterValidator(_check_rule)] = Field(examples=["user_name IS NOT NULL"])
    """A condition over the columns of a row, in Spark's SQL; null does not pass."""

    on_fail: Literal["warn", "quarantine", "fail"] = "warn"
    """What happens to rows that fail: they land and are counted, they go to the quarantine, or
    nothing of their batch lands."""


def _written_short(written: object) -> object:
    """`valid: x > 0` is short for `valid: {rule: x > 0}`."""
    return {"rule": written} if isinstance(written, str) else written


def _check_names(
    expect: Mapping[str, Mapping[str, Expectation]],
) -> Mapping[str, Mapping[str, Expectation]]:
    refused: dict[Path, InvalidPipeline] = {}
    for pattern, expectations in expect.items():
        for name in expectations:
            if not _NAME.fullmatch(name):
                hint = "use letters, digits and `_`, and start with a letter"
                message = f"is not a valid name for an expectation: {shown(name)}"
                refused[pattern, name] = InvalidPipeline("bad-value", message, hint)
    if refused:
        raise refused_below(refused)
    return expect


ExpectationField: TypeAlias = Annotated[
    Expectation, BeforeValidator(_written_short, json_schema_input_type=str | Expectation)
]

Expectations: TypeAlias = Annotated[
    Mapping[str, Mapping[str, ExpectationField]], AfterValidator(_check_names)
]
"""By pattern of tables' names, then by name."""


def check_patterns(patterns: Iterable[str], templates: Iterable[str]) -> None:
    """Raise if a pattern matches no landed table."""
    known = [re.sub(r"\{[^{}]*\}", "*", each) for each in templates]
    refused: dict[Path, InvalidPipeline] = {}
    for pattern in patterns:
        if not any(may_share_a_name(pattern, each) for each in known):
            hint = did_you_mean(pattern, known) or f"tables are called {listed(known)}"
            message = f"cannot be {shown(pattern)}: no landed table has such a name"
            refused["expect", pattern] = InvalidPipeline("bad-value", message, hint)
    if refused:
        raise refused_below(refused)
