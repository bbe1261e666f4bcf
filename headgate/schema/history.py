"""Which schemas each table has met, as the ledger tells it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headgate.schema.changes import DropColumn


@dataclass
class TableHistory:
    """What one table has been through."""

    met: set[int] = field(default_factory=set)
    """Schemas by id; each is told of once."""
    dropped: set[str] = field(default_factory=set)
    """Columns that the newest schema of their time no longer had."""

    def is_newest(self, schema_id: int) -> bool:
        return all(schema_id > known for known in self.met)


@dataclass
class SchemaHistory:
    """What all tables have been through."""

    tables: dict[str, TableHistory] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]]) -> SchemaHistory:
        """From the schema rows of the ledger."""
        history = cls()
        for row in rows:
            history.take(row["table"], json.loads(row["detail"]))
        return history

    def take(self, table: str, told: Mapping[str, Any]) -> None:
        mine = self.tables.setdefault(table, TableHistory())
        mine.met.update(told["schema_ids"])
        if told["change"] == DropColumn.__name__:
            mine.dropped.add(told["column"])

    def of_table(self, table: str) -> TableHistory:
        return self.tables.get(table) or TableHistory()

    @property
    def met(self) -> dict[str, frozenset[int]]:
        return {table: frozenset(one.met) for table, one in self.tables.items()}
