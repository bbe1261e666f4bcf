"""How rows fared by the rules of `expect`, over all batches."""

from __future__ import annotations

from headgate.inspect.ledger_rows import LedgerRows
from headgate.land.checked import Checked


def checked_rules(ledger: LedgerRows) -> tuple[Checked, ...]:
    """Each rule of each table once; what replays of the quarantine checked again is left out.

    A ledger has a row a table, rule and batch: they are added up where they are.
    """
    found = ledger.query(
        f"""
        SELECT "table", {_part("rule")} AS rule, {_part("on_fail")} AS on_fail,
            sum(CAST({_part("checked")} AS BIGINT)) AS checked, sum("rows") AS failed
        FROM ledger WHERE kind = 'expectation' GROUP BY 1, 2, 3 ORDER BY failed DESC, 1, 2, 3
        """
    )
    return tuple(Checked(**row) for row in found)


def _part(name: str) -> str:
    """What the detail has under a name; a rule's own name has no quotes in it."""
    return f"""regexp_match(detail, '"{name}": "?([^",}}]*)')[1]"""
