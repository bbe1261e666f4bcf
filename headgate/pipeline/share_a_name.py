"""Whether templates, such as `gold_{route}`, and patterns can mean the same table."""

from __future__ import annotations

import re

_OPEN = re.compile(r"\{[^{}]*\}|\*|\?|\[[^]]*\]")


def may_share_a_name(one: str, other: str) -> bool:
    """Whether some table may have a name by both; each is a name, a template or a pattern."""
    first, second = _OPEN.split(one), _OPEN.split(other)
    if len(first) == 1:
        return _fits(one, second)
    if len(second) == 1:
        return _fits(other, first)
    short, long = sorted((first[0], second[0]), key=len)
    short_end, long_end = sorted((first[-1], second[-1]), key=len)
    return long.startswith(short) and long_end.endswith(short_end)


def _fits(name: str, parts: list[str]) -> bool:
    return re.fullmatch(".*".join(map(re.escape, parts)), name) is not None
