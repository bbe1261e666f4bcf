"""What is expected of the rows of a table, and what is done about those that are otherwise."""

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
    from headgate.sql.rules import UnusableRule, expression_of, read_rule

    read_rule(rule)
    try:
        expression_of(rule)
    except UnusableRule as error:
        hint = "rules run without Spark; the guide to expectations lists what they support"
        raise bad_sql(f"cannot be checked: {error}", hint, error.inside) from None
    return rule


class Expectation(Declared):
    """A rule about rows: a row passes only if it is true, so that one of null does not."""

    rule: Annotated[str, AfterValidator(_check_rule)] = Field(examples=["user_name IS NOT NULL"])
    """An expression over the columns of a row, in Spark's SQL; it has to be true: null is not."""

    on_fail: Literal["warn", "quarantine", "fail"] = "warn"
    """What becomes of rows of which it is not true: they land and are counted, they go to the
    quarantine, or nothing of their batch lands."""


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
    """Refuses patterns that no landed table can match."""
    known = [re.sub(r"\{[^{}]*\}", "*", each) for each in templates]
    refused: dict[Path, InvalidPipeline] = {}
    for pattern in patterns:
        if not any(may_share_a_name(pattern, each) for each in known):
            hint = did_you_mean(pattern, known) or f"tables are called {listed(known)}"
            message = f"cannot be {shown(pattern)}: no landed table has such a name"
            refused["expect", pattern] = InvalidPipeline("bad-value", message, hint)
    if refused:
        raise refused_below(refused)
