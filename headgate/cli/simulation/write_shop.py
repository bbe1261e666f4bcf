"""Writes a shop's change files, and says on a terminal how far it is."""

from __future__ import annotations

from collections.abc import Iterator

from headgate.cli.amounts import number
from headgate.cli.simulation.progress_line import show
from headgate.simulate.shop.simulate_shop import ShopPlan, SimulatedShop, simulate_shop


def write_shop(plan: ShopPlan, on_database: bool) -> SimulatedShop:
    """Write it all; what has no end of its own ends with Ctrl-C."""
    written = SimulatedShop()
    try:
        for written in _steps(plan, on_database):
            show(_text(written, plan.changes))
    except KeyboardInterrupt:
        if plan.changes is not None:
            raise
    finally:
        show("")
    return written


def _steps(plan: ShopPlan, on_database: bool) -> Iterator[SimulatedShop]:
    if not on_database:
        return simulate_shop(plan, say=show)
    from headgate.local.services import DEFAULT_FOLDER
    from headgate.simulate.shop.database.run_on_database import run_on_database

    return run_on_database(plan, DEFAULT_FOLDER, show)


def _text(written: SimulatedShop, of: int | None) -> str:
    total = f" of {number(of)}" if of is not None else ""
    stop = "" if of is not None else ", Ctrl-C ends it"
    return f"{number(written.changes)}{total} changes, {number(written.rate)} changes/s{stop}"
