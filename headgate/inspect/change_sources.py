"""Which table of the source is behind which tables of a change pipeline."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import cache

from headgate.change.change_plan import ChangePlan, source_text
from headgate.change.known_source import KnownSource, source_of
from headgate.inspect.ledger_rows import LedgerRows
from headgate.pipeline import AnyPipeline, ChangePipeline, Pipeline
from headgate.replay.quarantine_snapshot import NamesOfRoute
from headgate.route.table_names import TableNames

_LOGS = """
SELECT "table", max(route) AS route FROM everything
WHERE kind = 'table' AND route IS NOT NULL GROUP BY "table"
"""


def plan_of_names(pipeline: ChangePipeline, ledger: LedgerRows) -> ChangePlan:
    """A plan that knows which logs there are and whose they are, and no more of them."""
    logs = {row["table"]: row["route"] for row in ledger.query(_LOGS)}
    known = {table: KnownSource(source_of(route)) for table, route in logs.items()}
    return replace(ChangePlan.of(pipeline), known=known)


def names_of_route(pipeline: AnyPipeline) -> NamesOfRoute:
    """What a person may call a route, beside itself."""
    if isinstance(pipeline, Pipeline):
        tables = TableNames.of(pipeline)
        return lambda route: (tables.silver_for(route),)

    @cache
    def plan() -> ChangePlan:
        assert isinstance(pipeline, ChangePipeline)
        return plan_of_names(pipeline, LedgerRows(pipeline))

    def names(route: str) -> Collection[str]:
        return plan().names_of_route(route)

    return names


def shown_route(pipeline: AnyPipeline, route: str | None) -> str | None:
    """A route as a person reads it: that of changes names a table of the source."""
    if route is None or isinstance(pipeline, Pipeline):
        return route
    return source_text(source_of(route))
