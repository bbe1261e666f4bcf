"""The silver tables that a pipeline's ledger knows, with the schemas that each has met."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass

from headgate.inspect.ledger_rows import LedgerRows
from headgate.land.schema_history import SchemaHistory, TableHistory
from headgate.schema.change import Outcome, SchemaChange

_IN_THE_TABLE = (Outcome.APPLIED, Outcome.KEPT_APART)


@dataclass(frozen=True)
class KnownTable:
    """What the ledger tells of one table."""

    table: str
    route: str | None
    """None where nothing has landed in it yet."""
    history: TableHistory
    withheld: frozenset[tuple[int, str, str, str]]
    """What the contract has kept out of it: schema, kind of change, column and outcome."""

    @classmethod
    def unheard_of(cls, table: str) -> KnownTable:
        return cls(table, None, TableHistory(), frozenset())

    @property
    def met(self) -> set[int]:
        return self.history.met

    def asked_in_vain(self, schema_id: int) -> bool:
        """Whether a contract kept anything of that schema out of the table."""
        return any(one == schema_id for one, *_ in self.withheld)

    def was_told(self, schema_id: int, change: SchemaChange) -> bool:
        """Whether the ledger has just that already."""
        return (schema_id, change.kind, change.column, change.outcome.value) in self.withheld


def read_known_tables(ledger: LedgerRows) -> dict[str, KnownTable]:
    """By name; also those that the contract did not let come to be."""
    landed = ledger.query(
        f"""
        SELECT "table", max(route) AS route, detail FROM ledger
        WHERE kind = 'table' AND {ledger.silver_only} GROUP BY "table", detail
        """
    )
    told = ledger.query(
        f"""
        SELECT "table", detail FROM ledger
        WHERE kind = 'schema' AND {ledger.silver_only} ORDER BY version
        """
    )
    routes = {row["table"]: row["route"] for row in landed}
    histories = SchemaHistory.of(told).tables
    for row in landed:
        history = histories.setdefault(row["table"], TableHistory())
        history.met.update(json.loads(row["detail"])["schema_ids"])
    withheld: dict[str, set[tuple[int, str, str, str]]] = defaultdict(set)
    for row in told:
        detail = json.loads(row["detail"])
        if detail["outcome"] not in _IN_THE_TABLE:
            what = detail["change"], detail["column"], detail["outcome"]
            withheld[row["table"]].update((one, *what) for one in detail["schema_ids"])
    return {
        table: KnownTable(table, routes.get(table), history, frozenset(withheld[table]))
        for table, history in histories.items()
    }
