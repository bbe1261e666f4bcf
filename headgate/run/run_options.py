"""What can be chosen for one run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RunOptions:
    """Beside what the pipeline says."""

    once: bool = False
    """Land what the source has now, then end."""
    replay: bool = False
    """Go on where the ledger ends, with a new checkpoint."""
    trigger_milliseconds: int | None = None
    """How often to look for new records, instead of what the pipeline says."""
