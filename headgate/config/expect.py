"""Expectations: rules for rows, and what happens to rows that fail them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field

from headgate.config.gold import names_may_collide
from headgate.config.model import ConfigModel, Path, invalid_at_paths
from headgate.errors import InvalidPipeline, did_you_mean, listed, shown

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


def _check_rule(rule: str) -> str:
    from headgate.sql.parse import bad_sql
    from headgate.sql.rules import UnusableRule, parse_condition, parse_rule

    parse_condition(rule)
    try:
        parse_rule(rule)
    except UnusableRule as error:
        hint = "rules run without Spark; the guide to expectations lists what they support"
        raise bad_sql(f"cannot be checked: {error}", hint, error.inside) from None
    return rule


class Expectation(ConfigModel):
    """A rule for rows: a row passes only if the rule is true, not if it is null."""

    rule: Annotated[str, AfterValidator(_check_rule)] = Field(examples=["user_name IS NOT NULL"])
    """Condition over the columns of a row, in Spark SQL. A row fails if it is false or null."""

    on_fail: Literal["warn", "quarantine", "fail"] = "warn"
    """What to do with rows that fail: `warn` lands and counts them, `quarantine` quarantines them,
    `fail` fails the batch, so that none of it lands."""


def _expand_short_form(written: object) -> object:
    """Expand `valid: x > 0` to `valid: {rule: x > 0}`."""
    return {"rule": written} if isinstance(written, str) else written


def _check_names(
    expect: Mapping[str, Mapping[str, Expectation]],
) -> Mapping[str, Mapping[str, Expectation]]:
    errors: dict[Path, InvalidPipeline] = {}
    for pattern, expectations in expect.items():
        for name in expectations:
            if not _NAME.fullmatch(name):
                hint = "use letters, digits and `_`, and start with a letter"
                message = f"is not a valid name for an expectation: {shown(name)}"
                errors[pattern, name] = InvalidPipeline("bad-value", message, hint)
    if errors:
        raise invalid_at_paths(errors)
    return expect


ExpectationField: TypeAlias = Annotated[
    Expectation, BeforeValidator(_expand_short_form, json_schema_input_type=str | Expectation)
]

Expectations: TypeAlias = Annotated[
    Mapping[str, Mapping[str, ExpectationField]], AfterValidator(_check_names)
]
"""Expectations by table name pattern, then by name."""


def check_patterns(patterns: Iterable[str], templates: Iterable[str]) -> None:
    """Raise if a pattern matches no landed table."""
    known = [re.sub(r"\{[^{}]*\}", "*", each) for each in templates]
    errors: dict[Path, InvalidPipeline] = {}
    for pattern in patterns:
        if not any(names_may_collide(pattern, each) for each in known):
            hint = did_you_mean(pattern, known) or f"tables are called {listed(known)}"
            message = f"cannot be {shown(pattern)}: no landed table has such a name"
            errors["expect", pattern] = InvalidPipeline("bad-value", message, hint)
    if errors:
        raise invalid_at_paths(errors)
