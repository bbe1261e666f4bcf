"""Templates that name the tables of a change pipeline after those of the source."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

from headgate.pipeline.finding import InvalidPipeline
from headgate.pipeline.wording import listed, shown

PLACEHOLDERS = ("{database}", "{schema}", "{table}")
_PLACEHOLDER = re.compile(r"\{[^{}]*\}")
_LITERAL = re.compile(r"(?!.*___)[a-z0-9_]*")
_LONGEST = 64


def parts(template: str) -> tuple[list[str], list[str]]:
    """The texts around the placeholders, one more than those, and the placeholders."""
    return _PLACEHOLDER.split(template), _PLACEHOLDER.findall(template)


def around(template: str) -> tuple[str, str]:
    """What every name that the template gives begins and ends with."""
    literals, _ = parts(template)
    return literals[0], literals[-1]


def _check(template: str) -> str:
    literals, placeholders = parts(template)
    if "{table}" not in placeholders:
        raise InvalidPipeline(
            "bad-template",
            f"needs `{{table}}`, but is {shown(template)}",
            "every table of the source gets one of its own: `{database}_{table}`",
        )
    if unknown := [each for each in placeholders if each not in PLACEHOLDERS]:
        raise InvalidPipeline(
            "bad-template", f"has {listed(unknown)}, but only {listed(PLACEHOLDERS)} are known"
        )
    if twice := sorted({each for each in placeholders if placeholders.count(each) > 1}):
        raise InvalidPipeline("bad-template", f"has {listed(twice)} twice")
    if not all(literals[1:-1]):
        raise InvalidPipeline(
            "bad-template",
            f"needs something between the placeholders, but is {shown(template)}",
            "without it nobody could tell them apart: `{database}_{table}`",
        )
    too_long = sum(map(len, literals)) > _LONGEST
    if too_long or template.startswith("_") or not all(map(_LITERAL.fullmatch, literals)):
        raise InvalidPipeline(
            "bad-template",
            f"cannot be {shown(template)}",
            "around the placeholders there may be up to 64 small letters, digits and `_`, but no"
            " `_` in front and no three in a row",
        )
    return template


ChangeTemplate = Annotated[str, AfterValidator(_check)]
"""Names with `{table}` in them, and `{database}` or `{schema}` where that is wanted."""
