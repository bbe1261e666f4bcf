"""Names of the tables of a pipeline."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import ClassVar, Protocol

from headgate.config import PipelineConfig
from headgate.config.gold import is_declared_gold
from headgate.config.names import around, parts
from headgate.config.pipeline import FILES_TABLE
from headgate.lake.tables import tables_in
from headgate.schema.names import digest, readable_name, safe_name

TOMBSTONES = "_tombstones_"
"""How the names of tables begin that keep the deleted rows of merged tables."""


@dataclass(frozen=True)
class TableNames:
    """Names of the tables of a pipeline of records."""

    silver: str
    quarantine: str
    ledger: str
    bronze: str | None = None

    @classmethod
    def of(cls, pipeline: PipelineConfig) -> TableNames:
        return cls(pipeline.silver, pipeline.quarantine_table, pipeline.ledger, pipeline.bronze)

    @cached_property
    def _reserved(self) -> frozenset[str]:
        """Routes whose silver table would have the name of another table of the pipeline."""
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
        """Return the silver tables that exist in the lake, whether the ledger has them or not."""
        own = {self.bronze, self.quarantine, self.ledger}
        found = tables_in(lake, self.silver.replace("{route}", "*"))
        return [name for name in found if name not in own]


class SourceName(Protocol):
    """The name of a source table in its changes."""

    @property
    def database(self) -> str | None: ...
    @property
    def schema(self) -> str | None: ...
    @property
    def table(self) -> str: ...


def placeholder_values(source: SourceName) -> dict[str, str]:
    """Return the values of placeholders; a missing database or schema is replaced by the other."""
    return {
        "{database}": source.database or source.schema or "",
        "{schema}": source.schema or source.database or "",
        "{table}": source.table,
    }


def pattern_name(source: SourceName) -> str:
    """Return `database.table`, which patterns of a pipeline file match."""
    values = placeholder_values(source)
    return f"{values['{database}']}.{values['{table}']}"


_BEFORE_DIGEST = "___"
_PLAIN = re.compile(r"[a-z0-9][a-z0-9_]{0,120}")
_MAX_READABLE = 100


@dataclass(frozen=True)
class ChangeName:
    """A template of names, and the letter that marks the digests in its names."""

    template: str
    letter: str

    def name_for(self, source: SourceName, is_taken: Callable[[str], bool]) -> str:
        """Return the name by the template; with a digest if it is invalid or taken."""
        name = self._plain(source)
        return self.name_with_digest(source) if name is None or is_taken(name) else name

    def name_with_digest(self, source: SourceName) -> str:
        """Return a name with a digest, which is unique to the source."""
        readable = [form for value in self._values(source) if (form := readable_name(value))]
        start = "_".join(readable)[:_MAX_READABLE].rstrip("_") or "table"
        whole = (source.database, source.schema, source.table)
        # Lengths keep values that contain a separator apart.
        exact = "".join("-" if each is None else f"{len(each)}:{each}" for each in whole)
        return self._around(f"{start}{_BEFORE_DIGEST}{self.letter}{digest(exact)}")

    def fits(self, name: str) -> bool:
        """Whether a name starts and ends like the template."""
        before, after = around(self.template)
        return name.startswith(before) and name.endswith(after)

    @property
    def narrowness(self) -> int:
        """Number of characters that the template fixes."""
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
        return None if not named or _BEFORE_DIGEST in name else name

    def _around(self, inner: str) -> str:
        before, after = around(self.template)
        return f"{before}{inner}{after}"


def letter_of_digest(name: str) -> str | None:
    """Return the letter of the digest in a name; None for a name without a digest."""
    _, follows, digested = name.partition(_BEFORE_DIGEST)
    return digested[:1] if follows else None


class ChangeTableKind(StrEnum):
    """Kinds of tables that a source table is landed in."""

    LOG = "log"
    MERGED = "merged"
    HISTORY = "history"


@dataclass(frozen=True)
class ChangeTables:
    """Names of the tables of a pipeline of changes."""

    change_log: str
    quarantine: str
    ledger: str
    merged: str | None = None
    history: str | None = None
    gold: tuple[str, ...] = ()
    """Names and templates of derived tables."""
    exact: bool = False
    """Whether all names have a digest, so that no two sources share one."""

    files: ClassVar[str] = FILES_TABLE

    @classmethod
    def of(cls, pipeline: PipelineConfig) -> ChangeTables:
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
        """Names with a digest, for a source whose names by the templates are taken."""
        return replace(self, exact=True)

    def log_for(self, source: SourceName) -> str:
        return self._name(ChangeTableKind.LOG, source)

    def merged_for(self, source: SourceName) -> str | None:
        """Return None if the pipeline does not declare this kind of table."""
        return self._name(ChangeTableKind.MERGED, source) if self.merged else None

    def history_for(self, source: SourceName) -> str | None:
        """Return None if the pipeline does not declare this kind of table."""
        return self._name(ChangeTableKind.HISTORY, source) if self.history else None

    def tombstones_for(self, source: SourceName) -> str:
        """Return the name of the table of rows that were deleted from the merged table."""
        return f"{TOMBSTONES}{self.merged_for(source) or self.log_for(source)}"

    def kind_of(self, table: str) -> ChangeTableKind | None:
        """Return the kind of a table; None for any other table."""
        if table in self._own or table.startswith("_"):
            return None
        by_digest = {names.letter: kind for kind, names in self._kinds.items()}
        if letter := letter_of_digest(table):
            return by_digest.get(letter)
        if is_declared_gold(self.gold, table):
            return None
        return next((kind for kind, names in self._kinds.items() if names.fits(table)), None)

    def logs_in(self, lake: str) -> list[str]:
        """Return the change logs that exist in the lake, whether the ledger has them or not."""
        return [name for name in tables_in(lake) if self.kind_of(name) == ChangeTableKind.LOG]

    @property
    def _own(self) -> frozenset[str]:
        return frozenset({self.quarantine, self.ledger, *self.gold})

    @cached_property
    def _kinds(self) -> dict[ChangeTableKind, ChangeName]:
        """The declared kinds, those with the most specific templates first."""
        templates = {
            ChangeTableKind.LOG: self.change_log,
            ChangeTableKind.MERGED: self.merged,
            ChangeTableKind.HISTORY: self.history,
        }
        names = {kind: ChangeName(one, kind[0]) for kind, one in templates.items() if one}
        return dict(sorted(names.items(), key=lambda each: -each[1].narrowness))

    def _name(self, kind: ChangeTableKind, source: SourceName) -> str:
        """Return a name. One that a more specific template could give is taken."""
        if self.exact:
            return self._kinds[kind].name_with_digest(source)
        before = list(self._kinds.values())[: list(self._kinds).index(kind)]

        def is_taken(name: str) -> bool:
            is_own = name in self._own or is_declared_gold(self.gold, name)
            return is_own or any(other.fits(name) for other in before)

        return self._kinds[kind].name_for(source, is_taken)
