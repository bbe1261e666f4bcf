"""A line that says how a gold table is kept up to date."""

from __future__ import annotations

from headgate.pipeline import GoldQuery, GoldUnion
from headgate.query.gold_select import parse_gold
from headgate.query.incremental import incremental
from headgate.query.mergeable import NotMergeable


def describe(name: str, declared: GoldQuery | GoldUnion) -> str:
    """`gold_{route}_player_agg: incremental (4 states)`."""
    return f"{name}: {_how(declared)}"


def _how(declared: GoldQuery | GoldUnion) -> str:
    if isinstance(declared, GoldUnion):
        return f"union of {declared.from_} by {declared.mode}"
    select = parse_gold(declared.sql)
    if select.row_by_row:
        return "row by row"
    found = incremental(select)
    if isinstance(found, NotMergeable):
        return f"recomputed for touched tables: {found.why}"
    count = len(found.states)
    return f"incremental ({count} {'state' if count == 1 else 'states'})"
