"""Which schemas each table has met."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class TableHistory:
    """The schemas of one table."""

    met: set[int] = field(default_factory=set)
    """Schemas by id; each is recorded and reported once."""
    dropped: set[str] = field(default_factory=set)
    """Columns that the newest schema of their time no longer had."""

    def is_newest(self, schema_id: int) -> bool:
        return all(schema_id > known for known in self.met)


@dataclass
class SchemaHistory:
    """The schemas of all tables."""

    tables: dict[str, TableHistory] = field(default_factory=dict)

    def record(self, table: str, schema_ids: Iterable[int], dropped: str | None = None) -> None:
        """Add schemas that a table has met, and the column that they dropped."""
        mine = self.tables.setdefault(table, TableHistory())
        mine.met.update(schema_ids)
        if dropped is not None:
            mine.dropped.add(dropped)

    def of_table(self, table: str) -> TableHistory:
        return self.tables.get(table) or TableHistory()

    @property
    def met(self) -> dict[str, frozenset[int]]:
        return {table: frozenset(one.met) for table, one in self.tables.items()}
