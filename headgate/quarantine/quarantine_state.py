"""What has become of a record in quarantine."""

from __future__ import annotations

from enum import StrEnum


class QuarantineState(StrEnum):
    """Every record is open until somebody settles it; none is ever deleted."""

    OPEN = "open"
    REPLAYED = "replayed"
    """It has landed after all."""
    DROPPED = "dropped"
    """It was given up: its bytes are gone, where it came from and why it is here stay."""
