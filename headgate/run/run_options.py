"""Options of a single run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RunOptions:
    """Options of a single run; everything else is declared in the pipeline."""

    once: bool = False
    """Land what the source has now, then exit."""
    from_ledger: bool = False
    """Start a new checkpoint and continue where the ledger ends."""
    trigger_milliseconds: int | None = None
    """How often to look for new records; overrides the pipeline's `trigger`."""
