"""A line that says how a gold table is kept up to date."""

from __future__ import annotations

from headgate.pipeline import GoldQuery, GoldUnion
from headgate.query.gold_select import parse_gold
from headgate.query.incremental import incremental
from headgate.query.mergeable import NotMergeable


def describe(name: str, declared: GoldQuery | GoldUnion) -> str:
    """`gold_{route}_player_agg: incremental (4 states)`."""
    return f"{name}: {how_it_follows(declared)}"


def how_it_follows(declared: GoldQuery | GoldUnion, rows_change: bool = False) -> str:
    """Where rows change and go, as in merged tables, nothing can be added to what there was."""
    if isinstance(declared, GoldUnion):
        return f"union of {declared.from_} by {declared.mode}"
    if rows_change:
        return "recomputed for touched tables: rows of merged tables change and go"
    select = parse_gold(declared.sql)
    if select.row_by_row:
        return "row by row"
    found = incremental(select)
    if isinstance(found, NotMergeable):
        return f"recomputed for touched tables: {found.why}"
    count = len(found.states)
    return f"incremental ({count} {'state' if count == 1 else 'states'})"
