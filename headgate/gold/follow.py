"""Updates of derived tables after every batch of a run, and rebuilds on request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headgate.cdc.source_tables import known_sources
from headgate.config import PipelineConfig
from headgate.engine.events import Listener
from headgate.engine.follow_up import Followed, TableChanged
from headgate.engine.session import pipeline_session
from headgate.errors import LandingError, did_you_mean, shown
from headgate.gold.declared import Landed, landed
from headgate.gold.derive import GoldDeriver
from headgate.lake.choose_committer import choose_committer
from headgate.lake.commit import Committer
from headgate.lake.layout import current_streams, lock_all
from headgate.lake.ledger import Ledger
from headgate.lake.ledger_entries import GoldEntry, Kind
from headgate.lake.ledger_snapshot import LedgerSnapshot
from headgate.lake.streams import app_id

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class GoldFollowUp:
    """Updates derived tables after the landed ones."""

    while_idle: ClassVar = False
    of_all_tables: ClassVar = False

    def __init__(
        self,
        spark: SparkSession,
        committer: Committer,
        pipeline: PipelineConfig,
        listener: Listener,
    ) -> None:
        self._pipeline = pipeline
        self._deriver = GoldDeriver(spark, committer, pipeline, app_id(pipeline.name), listener)
        self._caught_up = False

    def follow(self, changed: Sequence[TableChanged], batch: int | None) -> Followed:
        """Derive from tables that have changed; the first time from all landed tables."""
        stream = self._pipeline.stream
        tables: list[Landed] = []
        # The first shard also follows what the others land, for tables over all routes.
        if not self._caught_up or (stream.shard is not None and stream.is_first):
            if not self._caught_up:
                self._deriver.written |= _derived_versions(self._pipeline)
            self._caught_up = True
            tables = all_landed(self._pipeline)
            if not stream.is_first:
                tables = [one for one in tables if stream.has(one.route)]
            known = {one.table for one in tables}
            changed = [one for one in changed if one.table not in known]
        tables += landed(self._pipeline, [(one.table, one.route) for one in changed])
        return Followed(self._deriver.derive(tables))

    def tables(self, patterns: Sequence[str] = ("*",)) -> list[str]:
        """Return the derived tables of all landed ones, by name pattern."""
        self._load_landed()
        return self._deriver.tables(patterns)

    def refresh(self, tables: Sequence[str]) -> list[GoldEntry]:
        """Rebuild tables, and update those that are derived from them."""
        self._load_landed()
        entries = self._deriver.refresh(tables)
        entries += self._deriver.derive(list(self._deriver.known.values()))
        return entries

    def _load_landed(self) -> None:
        self._deriver.known |= {one.table: one for one in all_landed(self._pipeline)}


def all_landed(pipeline: PipelineConfig) -> list[Landed]:
    """Return all landed tables that gold may read, as the ledger records them."""
    if pipeline.lands_changes:
        merged = [one.merged for one in known_sources(pipeline) if one.merged is not None]
        return landed(pipeline, [(table, None) for table in merged])
    tables = LedgerSnapshot.open_all(pipeline.lake, pipeline.ledger, pipeline.name).tables(
        Kind.TABLE
    )
    return landed(pipeline, [(one.table, one.route) for one in tables.values()])


def _derived_versions(pipeline: PipelineConfig) -> dict[str, int]:
    """Return the version of each derived table that was written last, as the ledger has it."""
    ledger = LedgerSnapshot.open_all(pipeline.lake, pipeline.ledger, pipeline.name)
    tables = ledger.tables(Kind.GOLD).values()
    return {one.table: one.table_version for one in tables}


@dataclass(frozen=True)
class Refreshed:
    """A derived table that was rebuilt, or updated after one that was."""

    table: str
    rows: int
    version: int | None
    error: str | None = None


def refresh(
    pipeline: PipelineConfig,
    patterns: Sequence[str] = ("*",),
    listener: Listener = lambda _: None,
    began: Callable[[list[str]], None] = lambda _: None,
) -> list[Refreshed]:
    """Rebuild derived tables, each in one commit: readers see the old rows until then."""
    with lock_all(pipeline):
        spark = pipeline_session(pipeline)
        committer = choose_committer(pipeline.commit, lambda: spark, pipeline.lake)
        derived = GoldFollowUp(spark, committer, pipeline, listener)
        tables = derived.tables(patterns)
        if not tables:
            raise _unknown(patterns, derived.tables())
        began(tables)
        entries = derived.refresh(tables)
        first = current_streams(pipeline)[0].name
        ledger = Ledger(pipeline.lake, pipeline.ledger, first, committer)
        version = ledger.landed()
        if entries and version is not None:
            ledger.add(version, entries)
        return [
            Refreshed(entry.table, entry.rows, entry.table_version, entry.error)
            for entry in entries
        ]


def _unknown(patterns: Sequence[str], known: Sequence[str]) -> LandingError:
    wanted = ", ".join(map(shown, patterns))
    hint = "no table has landed yet that gold could be derived from"
    if known:
        hint = did_you_mean(patterns[0], known) or "headgate tables lists all tables"
    return LandingError("table-unknown", f"no derived table matches {wanted}", hint=hint)
