"""Rules of `expect`, sent to the executors and checked there on the rows of each table."""

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
from headgate.lake.staged import ExpectationResult, OnFail

if TYPE_CHECKING:
    from headgate.config.expect import Expectation
    from headgate.sql.evaluate import Condition


@dataclass(frozen=True)
class Rule:
    """A named condition on the rows of tables whose names match a pattern."""

    pattern: str
    name: str
    text: str
    on_fail: OnFail

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"

    @property
    def condition(self) -> Condition:
        from headgate.sql.evaluate import Condition

        return Condition.parse(self.text)


def rules_of(expect: Mapping[str, Mapping[str, Expectation]]) -> tuple[Rule, ...]:
    """Return the rules of a pipeline; raise if one of them cannot be evaluated."""
    rules = [
        Rule(pattern, name, one.rule, one.on_fail)
        for pattern, named in expect.items()
        for name, one in named.items()
    ]
    for rule in rules:
        assert rule.condition
    return tuple(rules)


class Expectations:
    """Checks the rows of one table in one task, and counts those that fail."""

    def __init__(self, table: str, rules: tuple[Rule, ...]) -> None:
        self._table = table
        self._conditions = tuple(rule.condition for rule in rules)
        self._columns = {name.lower() for one in self._conditions for name in one.columns}
        self._checked = 0
        self._failed = dict.fromkeys(rules, 0)
        self._examples: dict[Rule, str] = {}

    @classmethod
    def of(cls, expect: tuple[Rule, ...], table: str, *aliases: str) -> Expectations | None:
        """Return None for a table without rules."""
        rules = _rules_for(expect, (table, *aliases)) if expect else ()
        return cls(table, rules) if rules else None

    def check(self, place: Callable[[int], str], *parts: pa.RecordBatch) -> dict[int, str]:
        """Return the rows to quarantine, each with the first rule that it fails.

        `parts` hold the columns of the same rows; `place` returns the origin of a row. A row passes
        only where a rule is true: null fails.
        """
        # Takes most of a second to import, and is needed only where there are rules.
        from headgate.sql.evaluate import evaluate

        rows = self._columns_in(parts)
        self._checked += len(rows)
        quarantined: dict[int, str] = {}
        for rule, holds in zip(self._failed, evaluate(self._conditions, rows), strict=True):
            if holds.true_count == len(rows):
                continue
            failing = np.flatnonzero(~holds.fill_null(False).to_numpy(zero_copy_only=False))
            self._failed[rule] += len(failing)
            if rule.on_fail == "quarantine":
                for row in failing.tolist():
                    quarantined.setdefault(row, str(rule))
            elif rule.on_fail == "fail" and rule not in self._examples:
                self._examples[rule] = place(int(failing[0]))
        return quarantined

    def stop_if_broken(self) -> None:
        """Raise if a row failed a rule of `on_fail: fail`, before its batch is committed."""
        for rule, example in self._examples.items():
            raise LandingError(
                "expectation-failed",
                f"`{rule.name}` does not hold for {self._failed[rule]} of {self._checked} rows, "
                f"such as {example}: {rule.text}",
                hint="fix the source or the rule and run again: the same batch is retried; "
                "`on_fail: quarantine` would quarantine such rows instead",
                where=self._table,
            )

    @property
    def results(self) -> tuple[ExpectationResult, ...]:
        if not self._checked:
            return ()
        return tuple(
            ExpectationResult(self._table, rule.name, rule.on_fail, self._checked, failed)
            for rule, failed in self._failed.items()
        )

    def _columns_in(self, parts: tuple[pa.RecordBatch, ...]) -> pa.RecordBatch:
        """Return the columns that rules read; of the same name in several parts, the first."""
        found: dict[str, pa.Array] = {}
        for part in parts:
            for at, name in enumerate(part.schema.names):
                if name.lower() in self._columns:
                    found.setdefault(name, part.column(at))
        return pa.record_batch(found) if found else only_length(len(parts[0]))


def drop_rows(rows: pa.RecordBatch, failing: Mapping[int, str]) -> pa.RecordBatch:
    """Return the rows that are not among the failing ones."""
    if not failing:
        return rows
    kept = np.delete(np.arange(len(rows)), list(failing))
    return rows.take(pa.array(kept)) if rows.num_columns else only_length(len(kept))


@lru_cache(maxsize=4096)
def _rules_for(expect: tuple[Rule, ...], names: tuple[str, ...]) -> tuple[Rule, ...]:
    """Return the rules for a table; the first of each name counts."""
    found: dict[str, Rule] = {}
    for rule in expect:
        if any(fnmatchcase(name, rule.pattern) for name in names):
            found.setdefault(rule.name, rule)
    return tuple(found.values())
