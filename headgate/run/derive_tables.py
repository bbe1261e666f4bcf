"""Derived tables as a run keeps them: behind every batch, and at its start whatever is behind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from headgate.gold.derive_gold import GoldDeriver
from headgate.gold.landed import Landed, landed
from headgate.land.event import Listener
from headgate.land.ledger import Entry, Kind, Ledger
from headgate.pipeline import AnyPipeline, ChangePipeline
from headgate.replay.replay_names import name_in_ledger
from headgate.run.known_sources import known_sources

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class DerivedTables:
    """The derived tables of one pipeline; one that declares none costs nothing."""

    def __init__(
        self, spark: SparkSession, pipeline: AnyPipeline, ledger: Ledger, listener: Listener
    ) -> None:
        self._pipeline = pipeline
        self._ledger = ledger
        self._deriver = GoldDeriver(spark, pipeline, ledger.app, listener)

    def catch_up(self) -> None:
        """What an earlier run was cut short in, what a replay landed, what is declared anew."""
        version = self._ledger.landed()
        if self._pipeline.gold and version is not None:
            entries = self._deriver.derive(all_landed(self._pipeline))
            if entries:
                self._ledger.add(version, entries)

    def follow(self, tables: Iterable[tuple[str, str | None]]) -> list[Entry]:
        """Tables with their routes have got something."""
        if not self._pipeline.gold:
            return []
        return self._deriver.derive(landed(self._pipeline, tables))

    def tables(self, patterns: Sequence[str] = ("*",)) -> list[str]:
        """Those that are made of what has landed so far, by pattern."""
        self._learn()
        return self._deriver.tables(patterns)

    def refresh(self, tables: Sequence[str]) -> list[Entry]:
        """Make tables anew; those that are made of them follow."""
        self._learn()
        entries = self._deriver.refresh(tables)
        entries += self._deriver.derive(list(self._deriver.known.values()))
        version = self._ledger.landed()
        if entries and version is not None:
            self._ledger.add(version, entries)
        return entries

    def _learn(self) -> None:
        self._deriver.known |= {one.table: one for one in all_landed(self._pipeline)}


def all_landed(pipeline: AnyPipeline) -> list[Landed]:
    """All tables that others may be derived from, by the ledger."""
    if isinstance(pipeline, ChangePipeline):
        merged = [one.merged for one in known_sources(pipeline) if one.merged is not None]
        return landed(pipeline, [(table, None) for table in merged])
    rows = [
        row
        for name in (pipeline.name, name_in_ledger(pipeline.name))
        for row in Ledger(pipeline.lake, pipeline.ledger, name).rows([Kind.TABLE])
    ]
    return landed(pipeline, dict.fromkeys((row["table"], row["route"]) for row in rows))
