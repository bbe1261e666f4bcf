"""All cases landed in one lake: old records in the first batch, new ones in the second."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from headgate.config import Contract, Mode
from headgate.lake.commit import Committer
from headgate.lake.ledger_entries import SchemaEntry
from headgate.registry.registry import SchemaText
from headgate.schema.changes import Outcome
from headgate.schema.origin import ORIGIN_COLUMNS
from headgate.testing.lake import stage_in_process
from tests.engine.games import GamesLake, extent, records, wrapped
from tests.evolution.cases import Case

_KEPT_APART = re.compile(r"(__(?:struct|array|map|decimal))_[a-z2-7]{10}$")
_TWIN = re.compile(r"__[a-z2-7]{10}$")


@dataclass
class Landed:
    """A lake with a table for each case."""

    lake: GamesLake
    cases: Sequence[Case]

    def rows(self, case: Case) -> list[dict[str, Any]]:
        return [row_of(row) for row in self.lake.rows(f"silver_{case.route}")]

    def quarantined(self, case: Case) -> int:
        return self._quarantined[case.route]

    def told(self, case: Case) -> set[tuple[str, Outcome]]:
        """Return what the ledger records of the second batch."""
        return self._recorded[f"silver_{case.route}"]

    @cached_property
    def _quarantined(self) -> Counter[str]:
        return Counter(row["route"] for row in self.lake.rows("quarantine"))

    @cached_property
    def _recorded(self) -> defaultdict[str, set[tuple[str, Outcome]]]:
        recorded = defaultdict[str, set[tuple[str, Outcome]]](set)
        for row in self.lake.ledger.snapshot().entries(SchemaEntry):
            if row.batch == 1:
                recorded[row.entry.table].add((row.entry.change, Outcome(row.entry.outcome)))
        return recorded


def land_cases(
    folder: Path, cases: Sequence[Case], mode: Mode, committer: Committer | None = None
) -> Landed:
    """The committer, if one is given, is that of the second batch."""
    rules = {"columns": mode, "types": mode}
    new = [f"silver_{case.route}" for case in cases if case.before is None]
    strict_tables = {table: {"tables": mode} for table in new}
    lake = GamesLake(folder, max_tables=1000, contract=Contract(**rules, per_table=strict_tables))

    def record(case: Case, which: Any, text: SchemaText) -> bytes:
        schema_id = lake.registry.register(case.route, text)
        return wrapped(case.route, schema_id, case.payload(which))

    old = [record(case, "old", case.before) for case in cases if case.before]
    run = lake.start()
    run.land(extent(0), stage_in_process(records(old)))
    run.committer = committer or run.committer
    run.land(
        extent(1),
        stage_in_process(records([record(case, "new", case.after) for case in cases], len(old))),
    )
    return Landed(lake, cases)


def row_of(row: dict[str, Any]) -> dict[str, Any]:
    """The message's own values, without nulls and without digests in names."""
    named = {
        _TWIN.sub("__", _KEPT_APART.sub(r"\1", name)): plain(value)
        for name, value in row.items()
        if name not in ORIGIN_COLUMNS
    }
    return {name: value for name, value in named.items() if value is not None}


def plain(value: Any) -> Any:
    """A map as a dictionary, a struct without its nulls."""
    if isinstance(value, list) and value and all(isinstance(one, tuple) for one in value):
        return {key: plain(one) for key, one in value}
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items() if one is not None}
    return value
