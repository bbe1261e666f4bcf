"""How the rows of a table fared by a rule of `expect`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

OnFail = Literal["warn", "quarantine", "fail"]


@dataclass(frozen=True)
class Checked:
    """How many rows a rule was asked of, and how many of them broke it."""

    table: str
    rule: str
    on_fail: OnFail
    checked: int
    failed: int


def rules_added_up(counts: Iterable[Checked]) -> list[Checked]:
    """Each rule once, with the rows of all tasks, in the order of the tables' names."""
    sums: dict[tuple[str, str, OnFail], Checked] = {}
    for one in counts:
        key = one.table, one.rule, one.on_fail
        known = sums.get(key)
        if known is not None:
            checked, failed = known.checked + one.checked, known.failed + one.failed
            one = replace(one, checked=checked, failed=failed)
        sums[key] = one
    return sorted(sums.values(), key=lambda one: one.table)
