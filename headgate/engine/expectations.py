"""Rules of `expect` on their way to the executors, and how rows fare by them there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headgate.errors import LandingError
from headgate.formats.decoder import only_length
from headgate.lake.staged import Checked, OnFail

if TYPE_CHECKING:
    from headgate.config.expect import Expectation
    from headgate.sql.condition import Condition


@dataclass(frozen=True)
class Rule:
    """What rows of the tables that match are expected to be."""

    pattern: str
    name: str
    text: str
    on_fail: OnFail

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"

    def parsed(self) -> Condition:
        from headgate.sql.condition import Condition

        return Condition.parse(self.text)


def rules_of(expect: Mapping[str, Mapping[str, Expectation]]) -> tuple[Rule, ...]:
    """All that a pipeline expects, once it is known that it can be checked."""
    rules = [
        Rule(pattern, name, one.rule, one.on_fail)
        for pattern, named in expect.items()
        for name, one in named.items()
    ]
    for rule in rules:
        rule.parsed()
    return tuple(rules)


class Expectations:
    """The rules of one table, and how the rows of one task fare by them."""

    def __init__(self, table: str, rules: tuple[tuple[Rule, Condition], ...]) -> None:
        self._table = table
        self._rules = rules
        self._columns = {name.lower() for _, one in rules for name in one.columns}
        self._checked = 0
        self._failed = dict.fromkeys((rule for rule, _ in rules), 0)
        self._examples: dict[Rule, str] = {}

    @classmethod
    def of(cls, expect: tuple[Rule, ...], table: str, *aliases: str) -> Expectations | None:
        """None for a table of which nothing is expected."""
        rules = _rules_for(expect, (table, *aliases)) if expect else ()
        return cls(table, rules) if rules else None

    def check(self, place: Callable[[int], str], *parts: pa.RecordBatch) -> dict[int, str]:
        """The rows for the quarantine, each with the first rule that keeps it out.

        The parts have the columns of the rows, `place` tells where a row came from. A row passes
        only where a rule is true: what is unknown fails.
        """
        rows = self._asked_for(parts)
        self._checked += len(rows)
        failing: dict[int, str] = {}
        for rule, condition in self._rules:
            holds = condition.holds(rows)
            if holds.true_count == len(rows):
                continue
            broken = np.flatnonzero(~holds.fill_null(False).to_numpy(zero_copy_only=False))
            self._failed[rule] += len(broken)
            if rule.on_fail == "quarantine":
                for row in broken.tolist():
                    failing.setdefault(row, str(rule))
            elif rule.on_fail == "fail" and rule not in self._examples:
                self._examples[rule] = place(int(broken[0]))
        return failing

    def stop_if_broken(self) -> None:
        """Nothing is committed of a batch in which a row breaks a rule that is to stop it."""
        for rule, example in self._examples.items():
            raise LandingError(
                "expectation-failed",
                f"`{rule.name}` does not hold for {self._failed[rule]} of {self._checked} rows, "
                f"such as {example}: {rule.text}",
                hint="fix the source or the rule and run again to retry the batch; "
                "`on_fail: quarantine` would quarantine such rows instead",
                where=self._table,
            )

    @property
    def counts(self) -> tuple[Checked, ...]:
        if not self._checked:
            return ()
        return tuple(
            Checked(self._table, rule.name, rule.on_fail, self._checked, failed)
            for rule, failed in self._failed.items()
        )

    def _asked_for(self, parts: tuple[pa.RecordBatch, ...]) -> pa.RecordBatch:
        """The columns that rules are about; of one name in several parts, the first."""
        found: dict[str, pa.Array] = {}
        for part in parts:
            for at, name in enumerate(part.schema.names):
                if name.lower() in self._columns:
                    found.setdefault(name, part.column(at))
        return pa.record_batch(found) if found else only_length(len(parts[0]))


def without(rows: pa.RecordBatch, failing: Mapping[int, str]) -> pa.RecordBatch:
    if not failing:
        return rows
    kept = np.delete(np.arange(len(rows)), list(failing))
    return rows.take(pa.array(kept)) if rows.num_columns else only_length(len(kept))


@lru_cache(maxsize=4096)
def _rules_for(
    expect: tuple[Rule, ...], names: tuple[str, ...]
) -> tuple[tuple[Rule, Condition], ...]:
    """Asked for each table of each batch. Of rules of one name, the first that matches is meant."""
    mine: dict[str, Rule] = {}
    for rule in expect:
        if any(fnmatchcase(name, rule.pattern) for name in names):
            mine.setdefault(rule.name, rule)
    return tuple((rule, rule.parsed()) for rule in mine.values())
