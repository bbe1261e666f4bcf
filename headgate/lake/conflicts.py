"""What a commit that lost against another one may do: the conflicts of Delta, as one function.

Delta leaves it to writers to look at what others have committed since they read a table. Each
transaction says what it is based on, and `conflict` compares that with an entry of the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cached_property
from typing import Any
from urllib.parse import unquote

from headgate.lake.log import LogEntry


class Reads(Enum):
    """The rows that a transaction is based on."""

    NOTHING = auto()
    """It only adds rows."""
    FILES = auto()
    """Those of the files that it removes: a compaction."""
    TABLE = auto()
    """All of them: a merge must not miss a row with one of its keys."""


@dataclass(frozen=True)
class Transaction:
    """Actions for the next version of a table, and what they are based on."""

    id: str
    """Distinguishes the entry of this transaction from those of others."""
    table_id: str
    actions: tuple[Mapping[str, Any], ...]
    reads: Reads = Reads.NOTHING
    read_apps: frozenset[str] = frozenset()
    """Apps whose marks the actions depend on, beside those that they mark."""

    @cached_property
    def entry(self) -> LogEntry:
        return LogEntry(-1, self.actions)

    @cached_property
    def apps(self) -> frozenset[str]:
        """Apps whose marks it reads or writes."""
        return self.read_apps.union(self.entry.marks)

    @cached_property
    def removed(self) -> frozenset[str]:
        """Paths of the files that it removes."""
        return frozenset(unquote(file["path"]) for file in self.entry.removed_files)


class Cause(Enum):
    """What two transactions disagree about."""

    TABLE = "the table was replaced by another one"
    PROTOCOL = "the features of the table have changed"
    METADATA = "the columns or properties of the table have changed"
    MARK = "another run has committed the same or a later batch"
    FILES = "files that it replaces were replaced already"
    ROWS = "rows that it is based on have changed"


@dataclass(frozen=True)
class Conflict:
    """Why a transaction cannot follow an entry of the log as it is."""

    cause: Cause
    version: int
    detail: str = field(default="")

    @property
    def is_final(self) -> bool:
        """Whether a transaction of the same actions must not be tried again on a newer version."""
        return self.cause in (Cause.MARK, Cause.TABLE)

    def __str__(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return f"version {self.version}: {self.cause.value}{detail}"


def conflict(mine: Transaction, winner: LogEntry) -> Conflict | None:
    """Return why a transaction cannot follow an entry that others wrote since it read the table.

    Stricter than Delta in two ways, since files are staged for one set of columns and features: any
    change of the metadata or of the protocol is a conflict. And stricter than its default level for
    merges: rows that others insert may have the same keys.
    """

    def of(cause: Cause, detail: str = "") -> Conflict:
        return Conflict(cause, winner.version, detail)

    if winner.metadata is not None and winner.metadata["id"] != mine.table_id:
        return of(Cause.TABLE)
    apps = mine.apps & winner.marks.keys()
    if apps:
        return of(Cause.MARK, ", ".join(sorted(apps)))
    if winner.protocol is not None:
        return of(Cause.PROTOCOL)
    removed = {unquote(file["path"]) for file in winner.removed_files}
    if mine.removed & removed:
        return of(Cause.FILES)
    if mine.reads is Reads.TABLE and (removed or winner.added_files):
        return of(Cause.ROWS)
    if winner.metadata is not None:
        return of(Cause.METADATA)
    return None
