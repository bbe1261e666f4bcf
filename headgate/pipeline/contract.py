"""What a change of schema does."""

from __future__ import annotations

from enum import StrEnum


class Contract(StrEnum):
    """What a change of schema does to the table it lands in."""

    EVOLVE = "evolve"
    """The table follows: new columns are added, types are widened, nothing is dropped."""
