"""A position that a person types, as an order."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.cdc.order.encoding import CHANGE, HIGHEST, epochs
from headgate.cdc.order.mysql import typed_mysql_position
from headgate.cdc.order.oracle import typed_oracle_position
from headgate.cdc.order.postgresql import typed_postgresql_position
from headgate.cdc.order.sqlserver import typed_sqlserver_position
from headgate.errors import UsageError

_READINGS = (
    typed_mysql_position,
    typed_oracle_position,
    typed_postgresql_position,
    typed_sqlserver_position,
)


def position_order(text: str, lineages: Sequence[str]) -> str:
    """The highest order at a position: all changes up to and at it are no higher."""
    typed = next(filter(None, (reading(text.strip()) for reading in _READINGS)), None)
    if typed is None:
        raise UsageError(
            "bad-argument",
            f"{_shown(text)} is not a position in a log",
            hint="Positions look like mysql-bin.000014:4711, 0-1-270, scn:123456, 16/CB002DB0"
            " or 00000025:00000728:0003.",
        )
    epoch = epochs(lineages).get(typed.lineage)
    if epoch is None:
        raise UsageError(
            "bad-argument",
            f"{_shown(text)} is a position of {_shown(typed.lineage)}, which no landed change has",
            hint=f"Known lineages: {', '.join(lineages) or 'none'}.",
        )
    return f"{CHANGE}.{epoch}.{typed.text}.{HIGHEST}"


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:80]}…")
