"""What follows from landed tables: merged tables, derived tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from headgate.lake.ledger import Entry
from headgate.lake.staged import StagedFile


@dataclass(frozen=True)
class TableChanged:
    """A table that got something."""

    table: str
    route: str | None = None
    files: tuple[StagedFile, ...] = ()
    """What was committed to it, where it was landed."""


@dataclass(frozen=True)
class Followed:
    """What a follow-up did, for the ledger, and the tables that it changed."""

    entries: Sequence[Entry] = ()
    tables: Sequence[TableChanged] = ()


class FollowUp(Protocol):
    """Brings tables up to date with those that they are made of.

    Whatever it does, it can do again: a batch that is run again follows up again.
    """

    def follow(self, changed: Sequence[TableChanged], batch: int | None) -> Followed:
        """Follow tables that have changed.

        The first call also covers whatever an earlier run left behind. Without a batch, nothing
        is postponed.
        """
        ...


def follow_all(
    follow_ups: Sequence[FollowUp], changed: Sequence[TableChanged], batch: int | None
) -> list[Entry]:
    """Run follow-ups one after the other: each follows what the one before has changed."""
    entries: list[Entry] = []
    for follow_up in follow_ups:
        followed = follow_up.follow(changed, batch)
        entries += followed.entries
        changed = followed.tables
    return entries
