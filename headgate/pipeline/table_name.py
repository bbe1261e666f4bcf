"""Names of tables that stand in the pipeline file, and the template of those that do not."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

from headgate.pipeline.finding import InvalidPipeline
from headgate.pipeline.wording import listed, shown

_NAME = re.compile(r"[a-z][a-z0-9_]{0,127}")
_AROUND_ROUTE = re.compile(r"(?:[a-z0-9][a-z0-9_]{0,63})?\{route\}[a-z0-9_]{0,64}")
_PLACEHOLDER = re.compile(r"\{[^{}]*\}")


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidPipeline(
            "bad-value",
            f"cannot be {shown(name)}",
            "a table's name has small letters, digits and `_`, and starts with a letter",
        )
    return name


def _check_template(template: str) -> str:
    placeholders = _PLACEHOLDER.findall(template)
    if placeholders.count("{route}") != 1:
        raise InvalidPipeline(
            "bad-template",
            f"needs `{{route}}` exactly once, but is {shown(template)}",
            "every route lands in a table of its own: `silver_{route}`",
        )
    if len(placeholders) > 1:
        unknown = [each for each in placeholders if each != "{route}"]
        raise InvalidPipeline(
            "bad-template", f"has {listed(unknown)}, but only `{{route}}` is known"
        )
    if not _AROUND_ROUTE.fullmatch(template):
        raise InvalidPipeline(
            "bad-template",
            f"cannot be {shown(template)}",
            "around `{route}` there may be small letters, digits and `_`, but no `_` in front",
        )
    return template


def check_table_name(name: str) -> str:
    """A name or, if there are placeholders in it, a template."""
    return _check_template(name) if _PLACEHOLDER.search(name) else _check_name(name)


TableName = Annotated[str, AfterValidator(_check_name)]
TableTemplate = Annotated[str, AfterValidator(_check_template)]
