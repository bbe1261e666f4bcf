"""The tables of a change pipeline: what becomes of which table of the source."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from headgate.pipeline import ChangePipeline
from headgate.pipeline.change_pipeline import FILES_TABLE
from headgate.pipeline.gold import is_declared_gold
from headgate.route.change_name import ChangeName, letter_of_digest
from headgate.route.source_name import SourceName


class ChangeTableKind(StrEnum):
    """What is made of a table of the source."""

    LOG = "log"
    MERGED = "merged"
    HISTORY = "history"


@dataclass(frozen=True)
class ChangeTables:
    """Names of all the tables of one pipeline; everything else about names is derived."""

    change_log: str
    quarantine: str
    ledger: str
    merged: str | None = None
    history: str | None = None
    gold: tuple[str, ...] = ()
    """Names and templates of derived tables."""
    exact: bool = False
    """Whether sources have different names even if the templates see no difference."""

    files: ClassVar[str] = FILES_TABLE

    @classmethod
    def of(cls, pipeline: ChangePipeline) -> ChangeTables:
        return cls(
            change_log=pipeline.change_log,
            quarantine=pipeline.quarantine,
            ledger=pipeline.ledger,
            merged=pipeline.merged,
            history=pipeline.history,
            gold=tuple(pipeline.gold),
        )

    @property
    def apart(self) -> ChangeTables:
        """Names for a source whose own another one has already: with a digest of all of it."""
        return replace(self, exact=True)

    def log_for(self, source: SourceName) -> str:
        return self._name(ChangeTableKind.LOG, source)

    def merged_for(self, source: SourceName) -> str | None:
        """None where the pipeline wants none."""
        return self._name(ChangeTableKind.MERGED, source) if self.merged else None

    def history_for(self, source: SourceName) -> str | None:
        """None where the pipeline wants none."""
        return self._name(ChangeTableKind.HISTORY, source) if self.history else None

    def tombstones_for(self, source: SourceName) -> str:
        """Of rows that were deleted from the merged table."""
        return f"_tombstones_{self.merged_for(source) or self.log_for(source)}"

    def kind_of(self, table: str) -> ChangeTableKind | None:
        """What a table of this pipeline holds; None for one of its own, or of another."""
        if table in self._own or table.startswith("_"):
            return None
        by_digest = {names.letter: kind for kind, names in self._kinds.items()}
        if letter := letter_of_digest(table):
            return by_digest.get(letter)
        if is_declared_gold(self.gold, table):
            return None
        return next((kind for kind, names in self._kinds.items() if names.fits(table)), None)

    def logs_in(self, lake: str) -> list[str]:
        """The change logs that the lake has, whatever the ledger says."""
        tables = [log.parent.name for log in Path(lake).glob("*/_delta_log")]
        return sorted(name for name in tables if self.kind_of(name) == ChangeTableKind.LOG)

    @property
    def _own(self) -> frozenset[str]:
        return frozenset({self.quarantine, self.ledger, *self.gold})

    @cached_property
    def _kinds(self) -> dict[ChangeTableKind, ChangeName]:
        """Those that are wanted, and whose templates leave least open first."""
        templates = {
            ChangeTableKind.LOG: self.change_log,
            ChangeTableKind.MERGED: self.merged,
            ChangeTableKind.HISTORY: self.history,
        }
        names = {kind: ChangeName(one, kind[0]) for kind, one in templates.items() if one}
        return dict(sorted(names.items(), key=lambda each: -each[1].narrowness))

    def _name(self, kind: ChangeTableKind, source: SourceName) -> str:
        """A name that a template before this one could give is left to it."""
        if self.exact:
            return self._kinds[kind].name_apart(source)
        before = list(self._kinds.values())[: list(self._kinds).index(kind)]

        def is_taken(name: str) -> bool:
            left = name in self._own or is_declared_gold(self.gold, name)
            return left or any(other.fits(name) for other in before)

        return self._kinds[kind].name_for(source, is_taken)
