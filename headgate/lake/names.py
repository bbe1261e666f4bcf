"""The tables of a pipeline: which route goes where."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Protocol

from headgate.config import Pipeline
from headgate.config.gold import is_declared_gold
from headgate.config.names import around, parts
from headgate.config.pipeline import FILES_TABLE
from headgate.schema.names import digest, readable_name, safe_name


@dataclass(frozen=True)
class TableNames:
    """Names of all the tables of one pipeline; everything else about names is derived."""

    silver: str
    quarantine: str
    ledger: str
    bronze: str | None = None

    @classmethod
    def of(cls, pipeline: Pipeline) -> TableNames:
        return cls(pipeline.silver, pipeline.quarantine_table, pipeline.ledger, pipeline.bronze)

    @cached_property
    def _reserved(self) -> frozenset[str]:
        """Routes that would give a silver table the name of one of the pipeline's own."""
        before, after = self.silver.split("{route}")
        own = {self.quarantine, self.ledger, self.bronze}
        return frozenset(
            name.removeprefix(before).removesuffix(after)
            for name in own
            if name and name.startswith(before) and name.endswith(after)
        )

    def silver_for(self, route: str) -> str:
        return self.silver.replace("{route}", safe_name(route, self._reserved))

    def silver_in(self, lake: str) -> list[str]:
        """The silver tables that the lake has, whatever the ledger says."""
        own = {self.bronze, self.quarantine, self.ledger}
        logs = Path(lake).glob(f"{self.silver.replace('{route}', '*')}/_delta_log")
        return sorted(log.parent.name for log in logs if log.parent.name not in own)


class SourceName(Protocol):
    """A table of the source, as its changes name it."""

    @property
    def database(self) -> str | None: ...
    @property
    def schema(self) -> str | None: ...
    @property
    def table(self) -> str: ...


def placeholder_values(source: SourceName) -> dict[str, str]:
    """What stands for each placeholder; where there is only a database or only a schema, either."""
    return {
        "{database}": source.database or source.schema or "",
        "{schema}": source.schema or source.database or "",
        "{table}": source.table,
    }


def pattern_name(source: SourceName) -> str:
    """The name that the patterns of a pipeline file are about: `database.table`."""
    values = placeholder_values(source)
    return f"{values['{database}']}.{values['{table}']}"


_DIGEST_FOLLOWS = "___"
_PLAIN = re.compile(r"[a-z0-9][a-z0-9_]{0,120}")
_LONGEST_READABLE = 100


@dataclass(frozen=True)
class ChangeName:
    """A template, and the letter by which its digests differ from those of other templates."""

    template: str
    letter: str

    def name_for(self, source: SourceName, is_taken: Callable[[str], bool]) -> str:
        """What the template says, unless that is no name, or a name of something else."""
        name = self._plain(source)
        return self.name_apart(source) if name is None or is_taken(name) else name

    def name_apart(self, source: SourceName) -> str:
        """A name that no other source has."""
        readable = [form for value in self._values(source) if (form := readable_name(value))]
        start = "_".join(readable)[:_LONGEST_READABLE].rstrip("_") or "table"
        whole = (source.database, source.schema, source.table)
        # With their lengths: not even a value that holds a separator is taken for two.
        exact = "".join("-" if each is None else f"{len(each)}:{each}" for each in whole)
        return self._around(f"{start}{_DIGEST_FOLLOWS}{self.letter}{digest(exact)}")

    def fits(self, name: str) -> bool:
        """Whether the template could give a name as far as what is around it tells."""
        before, after = around(self.template)
        return name.startswith(before) and name.endswith(after)

    @property
    def narrowness(self) -> int:
        """How much of a name the template fixes."""
        return sum(map(len, around(self.template)))

    def _values(self, source: SourceName) -> Sequence[str]:
        values = placeholder_values(source)
        return [values[placeholder] for placeholder in parts(self.template)[1]]

    def _plain(self, source: SourceName) -> str | None:
        values = [re.sub(r"[^a-z0-9]", "_", value.lower()) for value in self._values(source)]
        between = parts(self.template)[0][1:-1]
        inner = values[0] + "".join(
            text + value for text, value in zip(between, values[1:], strict=True)
        )
        named = _PLAIN.fullmatch(inner) and all(value.strip("_") for value in values)
        name = self._around(inner)
        return None if not named or _DIGEST_FOLLOWS in name else name

    def _around(self, inner: str) -> str:
        before, after = around(self.template)
        return f"{before}{inner}{after}"


def letter_of_digest(name: str) -> str | None:
    """Whose digest is in a name; None where there is none."""
    _, follows, digested = name.partition(_DIGEST_FOLLOWS)
    return digested[:1] if follows else None


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
    def of(cls, pipeline: Pipeline) -> ChangeTables:
        return cls(
            change_log=pipeline.change_log,
            quarantine=pipeline.quarantine_table,
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
