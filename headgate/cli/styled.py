"""Colour for those who see it; the words alone say the same."""

from __future__ import annotations

import os
import sys
from typing import Literal, TextIO

Style = Literal["bold", "dim", "red", "green", "yellow", "cyan"]

_CODES: dict[Style, int] = {
    "bold": 1,
    "dim": 2,
    "red": 31,
    "green": 32,
    "yellow": 33,
    "cyan": 36,
}


def has_colour(stream: TextIO) -> bool:
    """Whether the stream is a terminal whose user has nothing against colour."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def styled(text: str, style: Style, stream: TextIO | None = None) -> str:
    stream = stream or sys.stdout
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if has_colour(stream) else text


def printable(text: str) -> str:
    """Text from a message, without anything that a terminal would obey."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )
