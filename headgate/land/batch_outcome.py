"""What a batch did, for the ledger and for whoever listens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from headgate.land.checked import Checked
from headgate.land.event import Event, ExpectationsBroken, SchemaChanged, TableWaits
from headgate.land.land_table import TableLanded, TablePending
from headgate.land.ledger import Entry, Kind, Pending
from headgate.land.schema_history import SchemaHistory
from headgate.land.withheld import Withheld
from headgate.schema.change import Outcome, SameColumns, SchemaChange


@dataclass(frozen=True)
class BatchOutcome:
    """The tables of a batch, what contracts kept out of them, and how rows fared by rules."""

    tables: Sequence[TableLanded | TablePending]
    withheld: Sequence[Withheld] = ()
    expectations: Sequence[Checked] = ()

    @property
    def landed(self) -> list[TableLanded]:
        return [one for one in self.tables if isinstance(one, TableLanded)]

    @property
    def pending(self) -> tuple[Pending, ...]:
        waiting = [one for one in self.tables if isinstance(one, TablePending)]
        return tuple(file for one in waiting for file in one.files)

    def changes(self, among: Collection[str]) -> list[SchemaChange]:
        """What happened to the columns of these tables."""
        mine = [table for table in self.landed if table.table in among]
        asked = [one.change for table in mine for one in table.changes]
        return [change for change in asked if not isinstance(change, SameColumns)]

    def entries(self, history: SchemaHistory) -> Iterator[Entry]:
        """Rows for the ledger: one a table, one a change, one a rule, one a file that waits."""
        for rule in self.expectations:
            detail = {name: value for name, value in vars(rule).items() if name != "table"}
            yield Entry(Kind.EXPECTATION, table=rule.table, rows=rule.failed, detail=detail)
        for kept in self._news(history):
            detail = {**kept.record, "schema_ids": list(kept.schema_ids), "rows": kept.rows}
            yield Entry(Kind.SCHEMA, table=kept.table, rows=kept.rows, detail=detail)
        for one in self.tables:
            if isinstance(one, TablePending):
                yield from _waiting(one)
                continue
            yield Entry(
                Kind.TABLE,
                table=one.table,
                route=one.route,
                rows=one.rows,
                bytes=one.bytes,
                files=one.files,
                table_version=one.version,
                detail={
                    "schema_ids": list(one.schema_ids),
                    **({"lineages": list(one.lineages)} if one.lineages else {}),
                    **self._left_out(one),
                },
            )
            for asked in one.changes:
                detail = {**asked.change.as_record(), "schema_ids": list(asked.schema_ids)}
                yield Entry(Kind.SCHEMA, table=one.table, route=one.route, detail=detail)

    def events(self, batch: int, history: SchemaHistory) -> Iterator[Event]:
        """The same for listeners, but for what is not worth a word."""
        for kept in self._news(history):
            yield SchemaChanged(batch, kept.table, kept.change, kept.schema_ids)
        if broken := tuple(one for one in self.expectations if one.failed):
            yield ExpectationsBroken(batch, broken)
        for one in self.tables:
            if isinstance(one, TablePending):
                rows = sum(waiting.file.rows for waiting in one.files)
                yield TableWaits(batch, one.table, rows, one.error)
                continue
            for asked in one.changes:
                if not isinstance(asked.change, SameColumns):
                    yield SchemaChanged(batch, one.table, asked.change, asked.schema_ids)

    def _news(self, history: SchemaHistory) -> list[Withheld]:
        """Each schema is told of once; how many records it cost is in the quarantine."""
        return [
            one
            for one in self.withheld
            if not history.of_table(one.table).met.issuperset(one.schema_ids or (-1,))
        ]

    def _left_out(self, table: TableLanded) -> dict[str, Any]:
        """Rows that landed without something they carried: nothing is left out silently."""
        counts: Counter[str] = Counter()
        for one in self.withheld:
            if one.table == table.table and one.change.outcome is Outcome.DISCARDED:
                counts[one.change.column] += one.rows
        discarded = {"discarded": dict(counts)} if counts else {}
        unknown = {"unknown_fields": table.unknown_fields} if table.unknown_fields else {}
        return {**discarded, **unknown}


def _waiting(table: TablePending) -> Iterator[Entry]:
    for waiting in table.files:
        detail = {
            "version": waiting.version,
            "file": waiting.file.to_json(),
            "error": table.error[:1000],
        }
        yield Entry(Kind.PENDING, table=table.table, rows=waiting.file.rows, detail=detail)
