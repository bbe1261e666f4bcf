"""Follow-ups of a batch: updates of merged and derived tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from headgate.lake.ledger_entries import Entry
from headgate.lake.staged import StagedFile


@dataclass(frozen=True)
class TableChanged:
    """A table that got new rows."""

    table: str
    route: str | None = None
    files: tuple[StagedFile, ...] = ()
    """The committed files, if a batch landed them."""


@dataclass(frozen=True)
class Followed:
    """The result of a follow-up: entries for the ledger, and the tables that it changed."""

    entries: Sequence[Entry] = ()
    tables: Sequence[TableChanged] = ()


class FollowUp(Protocol):
    """Brings tables up to date with those that they are derived from.

    A follow-up is idempotent: a batch that is retried runs it again.
    """

    while_idle: ClassVar[bool]
    """Whether to call it also while the source is idle, a few times per second."""

    def follow(self, changed: Sequence[TableChanged], batch: int | None) -> Followed:
        """Update the tables that depend on changed ones.

        The first call also covers what an earlier run has left undone. Without a batch, nothing is
        postponed.
        """
        ...


def follow_all(
    follow_ups: Sequence[FollowUp], changed: Sequence[TableChanged], batch: int | None
) -> list[Entry]:
    """Run follow-ups in order; each gets the tables that the one before has changed."""
    entries: list[Entry] = []
    for follow_up in follow_ups:
        followed = follow_up.follow(changed, batch)
        entries += followed.entries
        changed = followed.tables
    return entries
