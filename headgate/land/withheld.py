"""What the contract kept out of a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from headgate.schema.change import SchemaChange, change_of


@dataclass(frozen=True)
class Withheld:
    """A change that a schema asked for in vain, and how many records had such a value."""

    table: str
    schema_ids: tuple[int, ...]
    """The schema that asked, where it has a number."""
    record: Mapping[str, Any]
    """The change, as the ledger has it."""
    rows: int

    @property
    def change(self) -> SchemaChange:
        change = change_of(self.record)
        assert change is not None
        return change


def added_up(withheld: Iterable[Withheld]) -> list[Withheld]:
    """Each change once, with the records of all tasks."""
    sums: dict[tuple[str, tuple[int, ...], SchemaChange], Withheld] = {}
    for one in withheld:
        key = one.table, one.schema_ids, one.change
        known = sums.get(key)
        sums[key] = replace(known, rows=known.rows + one.rows) if known else one
    return list(sums.values())
