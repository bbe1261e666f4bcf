"""One line on a terminal that says how far a simulation is."""

from __future__ import annotations

import sys

_CLEAR = "\r\x1b[K"


def show(text: str) -> None:
    """Over the text before it; nothing where nobody watches."""
    if sys.stderr.isatty():
        print(f"{_CLEAR}{text}", end="", file=sys.stderr, flush=True)
