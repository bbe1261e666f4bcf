"""Sends a simulation, and says on a terminal how far it is."""

from __future__ import annotations

import sys

from headgate.cli.amounts import number, rate
from headgate.cli.simulation.target import Target
from headgate.simulate.simulate_games import GamesPlan, Simulated, simulate_games

_CLEAR = "\r\x1b[K"


def send(plan: GamesPlan, target: Target) -> Simulated:
    """Send it all; what has no end of its own ends with Ctrl-C."""
    destination = target.open()
    sent = Simulated()
    try:
        for sent in simulate_games(plan, target.open_registry(), destination, say=_show):
            _show(_text(sent, plan.records))
    except KeyboardInterrupt:
        if plan.records is not None:
            raise
        destination.flush()
    finally:
        _show("")
    return sent


def _text(sent: Simulated, of: int | None) -> str:
    total = f" of {number(of)}" if of is not None else ""
    stop = "" if of is not None else ", Ctrl-C ends it"
    return f"{number(sent.records)}{total} records, {rate(sent.records, sent.seconds)}{stop}"


def _show(text: str) -> None:
    if sys.stderr.isatty():
        print(f"{_CLEAR}{text}", end="", file=sys.stderr, flush=True)
