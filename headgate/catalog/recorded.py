"""What the ledger says of a pipeline's tables in a catalog: registrations and grants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headgate.config import Catalog, Granted, PipelineConfig
from headgate.lake.ledger_entries import CatalogEntry, GrantsEntry
from headgate.lake.ledger_snapshot import LedgerSnapshot


@dataclass(frozen=True)
class Recorded:
    """Tables of a pipeline, and what the ledger says of them in a catalog."""

    tables: frozenset[str]
    registered: frozenset[str] = frozenset()
    errors: Mapping[str, str] = field(default_factory=dict)
    """Why tables could not be registered."""
    grants: Mapping[str, frozenset[Granted]] = field(default_factory=dict)
    """What Headgate has granted, by table."""
    grant_errors: Mapping[str, str] = field(default_factory=dict)
    """Why grants on tables were refused."""

    @classmethod
    def of(cls, pipeline: PipelineConfig, catalog: Catalog) -> Recorded:
        snapshot = LedgerSnapshot.open_all(pipeline.lake, pipeline.ledger, pipeline.name)
        last = {
            row.entry.table: row.entry.error
            for row in sorted(snapshot.last_outcomes(CatalogEntry), key=lambda row: row.at)
            if row.entry.catalog == catalog.identity
        }
        granted = {
            row.entry.table: row.entry
            for row in sorted(snapshot.last_outcomes(GrantsEntry), key=lambda row: row.at)
            if row.entry.catalog == catalog.identity
        }
        found = snapshot.tables()
        return cls(
            frozenset({*found, pipeline.ledger} if found else ()),
            frozenset(table for table, error in last.items() if error is None),
            {table: error for table, error in last.items() if error is not None},
            {table: frozenset(map(Granted.parse, one.grants)) for table, one in granted.items()},
            {table: one.error for table, one in granted.items() if one.error is not None},
        )

    @property
    def missing(self) -> list[str]:
        return sorted(self.tables - self.registered)
