"""What schemas would ask of one table if their records came now: pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from headgate.inspect.known_tables import KnownTable
from headgate.land.fit_files import Asked, fit_files
from headgate.land.schema_history import TableHistory
from headgate.land.staged_file import StagedFile, written
from headgate.pipeline import Mode, Rules
from headgate.schema.change import CreateTable, Outcome, SameColumns, WidenType
from headgate.schema.fit import decided, fit
from headgate.schema.origin import ORIGIN


@dataclass(frozen=True)
class PlannedColumns:
    """What would be new, and what would be withheld as it was before."""

    changes: tuple[Asked, ...] = ()
    as_before: tuple[Asked, ...] = ()
    columns: tuple[str, ...] = ()
    """Those that the table would have."""

    @property
    def widens(self) -> bool:
        return any(
            isinstance(one.change, WidenType) and one.change.outcome is Outcome.APPLIED
            for one in self.changes
        )


def plan_table(
    known: KnownTable,
    columns: pa.Schema | None,
    schemas: Mapping[int, pa.Schema],
    rules: Rules,
    may_widen: bool = True,
) -> PlannedColumns:
    """By the very functions that land; `columns` is None where there is no such table yet."""
    if columns is None and rules.tables is not Mode.EVOLVE:
        return _told_apart(known, _without_table(known.table, schemas, rules))
    history = known.history if columns is not None else TableHistory()
    new = {key: schemas[key] for key in sorted(schemas.keys() - history.met)}
    shape = columns if columns is not None else schemas[min(schemas)]
    withheld = [
        Asked(change, (key,))
        for key, schema in new.items()
        for change in fit(schema, shape, rules).withheld
    ]
    refused = {one.schema_ids[0] for one in withheld if one.change.outcome is Outcome.REFUSED}
    landing = {key: schema for key, schema in new.items() if key not in refused}
    fitted = fit_files(
        known.table, _unwritten(known.table, landing), columns, ORIGIN, history, rules, may_widen
    )
    asked = [*fitted.asked, *withheld] if landing else withheld
    for key in sorted(schemas.keys() - new.keys()):
        again = fit(schemas[key], fitted.schema, rules, may_widen)
        asked += [Asked(one, (key,)) for one in again.changes if one.decided_by is not None]
    there = columns is not None or bool(landing)
    return _told_apart(known, asked, fitted.schema.names if there else ())


def _without_table(table: str, schemas: Mapping[int, pa.Schema], rules: Rules) -> list[Asked]:
    return [
        Asked(decided(CreateTable(table, len(schema)), rules), (key,))
        for key, schema in sorted(schemas.items())
    ]


def _unwritten(table: str, schemas: Mapping[int, pa.Schema]) -> list[StagedFile]:
    """A file as records of these schemas would bring it, as far as columns are concerned."""
    columns = ORIGIN.serialize().to_pybytes()
    texts = {str(key): written(schema) for key, schema in schemas.items()}
    return [StagedFile(table, "", 0, 0, "", columns, None, tuple(schemas), new_schemas=texts)]


def _told_apart(
    known: KnownTable, asked: Sequence[Asked], columns: Iterable[str] = ()
) -> PlannedColumns:
    """Each schema is told of once: what the ledger has already is nothing new."""
    worth = [one for one in asked if not isinstance(one.change, SameColumns)]
    before = [
        one for one in worth if all(known.was_told(key, one.change) for key in one.schema_ids)
    ]
    new = tuple(one for one in worth if one not in before)
    return PlannedColumns(new, tuple(before), tuple(columns))
