"""Sends a simulation, and says on a terminal how far it is."""

from __future__ import annotations

from headgate.cli.amounts import number, rate
from headgate.cli.simulation.progress_line import show
from headgate.cli.simulation.target import Target
from headgate.simulate.simulate_games import GamesPlan, Simulated, simulate_games


def send(plan: GamesPlan, target: Target) -> Simulated:
    """Send it all; what has no end of its own ends with Ctrl-C."""
    destination = target.open()
    sent = Simulated()
    try:
        for sent in simulate_games(plan, target.open_registry(), destination, say=show):
            show(_text(sent, plan.records))
    except KeyboardInterrupt:
        if plan.records is not None:
            raise
        destination.flush()
    finally:
        show("")
    return sent


def _text(sent: Simulated, of: int | None) -> str:
    total = f" of {number(of)}" if of is not None else ""
    stop = "" if of is not None else ", Ctrl-C ends it"
    return f"{number(sent.records)}{total} records, {rate(sent.records, sent.seconds)}{stop}"
