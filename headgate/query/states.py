"""What is kept for each group of a SELECT, and the SQL that computes and merges it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headgate.pipeline.sql.outputs import TABLE_COLUMN
from headgate.query import merge_sql

EACH_TABLE = (TABLE_COLUMN,)


@dataclass(frozen=True)
class Key:
    """A column that tells groups apart."""

    name: str
    expression: str
    """Over rows of the input."""
    visible: bool


@dataclass(frozen=True)
class State:
    """A column that is kept for each group: computed from rows, merged with what was kept before.

    A sum of decimals that is merged has more digits than one of rows: what merges casts it to the
    type that the partial has.
    """

    name: str
    partial: str
    """Over rows of the input."""
    merge: str
    """Over column `name` of several states."""
    visible: str | None
    """The output that it is."""


@dataclass(frozen=True)
class Computed:
    """An output, as an expression over keys and states."""

    name: str
    expression: str


@dataclass(frozen=True)
class Incremental:
    """How the groups of a SELECT are computed from new rows and from what is there.

    Views with states have the extra keys, the keys and the states as columns, and gold tables those
    and the outputs. With the extra key `_table`, rows of many tables are computed at once.
    """

    source: str
    """What the SELECT calls its input."""
    laterals: str
    """What it makes of each row before anything else: `LATERAL VIEW …`."""
    where: str | None
    keys: tuple[Key, ...]
    states: tuple[State, ...]
    outputs: tuple[Computed, ...]

    @property
    def hidden(self) -> tuple[str, ...]:
        """Columns that gold tables have besides the outputs."""
        keys = [each.name for each in self.keys if not each.visible]
        return (*keys, *(each.name for each in self.states if each.visible is None))

    def partial_sql(self, source_view: str, extra_keys: Sequence[str] = EACH_TABLE) -> str:
        """From rows to states."""
        return merge_sql.partial(self, source_view, extra_keys)

    def merge_sql(self, states_view: str, extra_keys: Sequence[str] = EACH_TABLE) -> str:
        """From several states of each group, new and old ones, to one."""
        return merge_sql.merge(self, states_view, extra_keys)

    def outputs_sql(self, states_view: str, extra_keys: Sequence[str] = EACH_TABLE) -> str:
        """From states to the columns of the gold table: outputs in order, then what is hidden."""
        return merge_sql.outputs(self, merge_sql.quoted(states_view), extra_keys)

    def full_sql(self, source_view: str, extra_keys: Sequence[str] = EACH_TABLE) -> str:
        """From all rows to the columns of the gold table, by the same functions."""
        partial = self.partial_sql(source_view, extra_keys)
        return merge_sql.outputs(self, f"(\n{partial}\n)", extra_keys)
