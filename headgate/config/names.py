"""Table names, templates of table names, and patterns of source tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import AfterValidator

from headgate.config.model import invalid_at
from headgate.errors import InvalidPipeline, listed, shown

_NAME = re.compile(r"[a-z][a-z0-9_]{0,127}")
_AROUND_ROUTE = re.compile(r"(?:[a-z0-9][a-z0-9_]{0,63})?\{route\}[a-z0-9_]{0,64}")
_PLACEHOLDER = re.compile(r"\{[^{}]*\}")


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidPipeline(
            "bad-value",
            f"cannot be {shown(name)}",
            "table names have lowercase letters, digits and `_`, and start with a letter",
        )
    return name


def _check_template(template: str) -> str:
    placeholders = _PLACEHOLDER.findall(template)
    if placeholders.count("{route}") != 1:
        raise InvalidPipeline(
            "bad-template",
            f"needs `{{route}}` exactly once, but is {shown(template)}",
            "every route lands in its own table: `silver_{route}`",
        )
    if len(placeholders) > 1:
        unknown = [each for each in placeholders if each != "{route}"]
        raise InvalidPipeline(
            "bad-template", f"has {listed(unknown)}, but only `{{route}}` is allowed"
        )
    if not _AROUND_ROUTE.fullmatch(template):
        raise InvalidPipeline(
            "bad-template",
            f"cannot be {shown(template)}",
            "besides `{route}`, use lowercase letters, digits and `_`; do not start with `_`",
        )
    return template


def check_table_name(name: str) -> str:
    """Validate a table name, or a template if it has placeholders."""
    return _check_template(name) if _PLACEHOLDER.search(name) else _check_name(name)


TableName = Annotated[str, AfterValidator(_check_name)]
TableTemplate = Annotated[str, AfterValidator(_check_template)]

PLACEHOLDERS = ("{database}", "{schema}", "{table}")
_CHANGE_PLACEHOLDER = re.compile(r"\{[^{}]*\}")
_LITERAL = re.compile(r"(?!.*___)[a-z0-9_]*")
_LONGEST = 64


def parts(template: str) -> tuple[list[str], list[str]]:
    """Split a template into the literals around the placeholders, and the placeholders."""
    return _CHANGE_PLACEHOLDER.split(template), _CHANGE_PLACEHOLDER.findall(template)


def around(template: str) -> tuple[str, str]:
    """Return the prefix and the suffix of all names that a template produces."""
    literals, _ = parts(template)
    return literals[0], literals[-1]


def _check(template: str) -> str:
    literals, placeholders = parts(template)
    if "{table}" not in placeholders:
        raise InvalidPipeline(
            "bad-template",
            f"needs `{{table}}`, but is {shown(template)}",
            "every source table gets its own table: `{database}_{table}`",
        )
    if unknown := [each for each in placeholders if each not in PLACEHOLDERS]:
        raise InvalidPipeline(
            "bad-template", f"has {listed(unknown)}, but only {listed(PLACEHOLDERS)} are allowed"
        )
    if duplicates := sorted({each for each in placeholders if placeholders.count(each) > 1}):
        raise InvalidPipeline("bad-template", f"has duplicates: {listed(duplicates)}")
    if not all(literals[1:-1]):
        raise InvalidPipeline(
            "bad-template",
            f"needs a separator between the placeholders, but is {shown(template)}",
            "otherwise names are ambiguous; write `{database}_{table}`",
        )
    too_long = sum(map(len, literals)) > _LONGEST
    if too_long or template.startswith("_") or not all(map(_LITERAL.fullmatch, literals)):
        raise InvalidPipeline(
            "bad-template",
            f"cannot be {shown(template)}",
            "besides placeholders, use up to 64 lowercase letters, digits and `_`; do not start"
            " with `_` or use three in a row",
        )
    return template


ChangeTemplate = Annotated[str, AfterValidator(_check)]
"""A name template with `{table}`, and optionally `{database}` or `{schema}`."""


def matching(name: str, patterns: Iterable[str]) -> str | None:
    """Return the first pattern that matches a `database.table`, ignoring case."""
    return next((one for one in patterns if fnmatchcase(name.lower(), one.lower())), None)


def check_pattern(pattern: str) -> None:
    """Raise if a pattern lacks the database: it needs a dot, or a `*` that may match one."""
    if not pattern.strip() or not any(each in pattern for each in ".*"):
        raise InvalidPipeline(
            "bad-value",
            f"cannot be {shown(pattern)}",
            "write `database.table`; `*` matches anything: `shop.*`, `*.orders`",
        )


def _check_all(patterns: Sequence[str]) -> tuple[str, ...]:
    errors: dict[str | int, InvalidPipeline] = {}
    for index, pattern in enumerate(patterns):
        try:
            check_pattern(pattern)
        except InvalidPipeline as error:
            errors[index] = error
    if errors:
        raise invalid_at(errors)
    return tuple(patterns)


SourcePatterns = Annotated[Sequence[str], AfterValidator(_check_all)]
