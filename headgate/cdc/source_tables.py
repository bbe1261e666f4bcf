"""The source tables of a change pipeline, by any name that a person may have for one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from headgate.cdc.known_source import KnownSource, known_logs
from headgate.cdc.plan import ChangePlan
from headgate.config import Pipeline
from headgate.errors import LandingError, UsageError, did_you_mean, listed, shown
from headgate.lake.ledger import LedgerSnapshot, replay_name
from headgate.lake.names import pattern_name


def known_with_replays(pipeline: Pipeline) -> dict[str, KnownSource]:
    """By change log. A replay may have made one that no run has seen yet."""
    known: dict[str, KnownSource] = {}
    ledger = LedgerSnapshot.open(pipeline.lake, pipeline.ledger, pipeline.name)
    for name in (pipeline.name, replay_name(pipeline.name)):
        for table, found in known_logs(ledger.of(name), pipeline.lake).items():
            known[table] = _joined(known[table], found) if table in known else found
    return known


def _joined(one: KnownSource, other: KnownSource) -> KnownSource:
    """Who knows of more lineages learnt of them later."""
    earlier, later = sorted((one, other), key=lambda known: len(known.lineages))
    return earlier.joined(later)


@dataclass(frozen=True)
class SourceTables:
    """A source table, and what there is or will be of it in the lake."""

    known: KnownSource
    log: str
    merged: str | None
    history: str | None
    key: tuple[str, ...] | None
    """Declared by the pipeline."""

    @property
    def name(self) -> str:
        return pattern_name(self.known.source)

    @property
    def in_lake(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.merged, self.log, self.history)))

    @property
    def names(self) -> tuple[str, ...]:
        """All that it is called: here, and at its source."""
        source = self.known.source
        by_schema = f"{source.schema}.{source.table}" if source.schema else self.name
        return (*self.in_lake, self.name, by_schema, f"{source.database}.{by_schema}")


def known_sources(pipeline: Pipeline) -> list[SourceTables]:
    """All that the ledger tells of."""
    known = known_with_replays(pipeline)
    plan = replace(ChangePlan.of(pipeline), known=known)
    found = []
    for log, one in sorted(known.items()):
        names = plan.tables_of(one.source)
        key = plan.envelope.key_of(pattern_name(one.source))
        merged, history = names.merged_for(one.source), names.history_for(one.source)
        found.append(SourceTables(one, log, merged, history, key))
    return found


def find_source(sources: Sequence[SourceTables], name: str) -> SourceTables:
    """The one of that name: in the lake before at the source, and as it is written before in
    other letters."""
    for spelt in (str, str.lower):
        for names in (attrgetter("in_lake"), attrgetter("names")):
            found = [one for one in sources if spelt(name) in map(spelt, names(one))]
            if len(found) == 1:
                return found[0]
            if found:
                raise UsageError(
                    "bad-argument",
                    f"{shown(name)} matches {len(found)} source tables",
                    hint=f"name its change log: {listed(one.log for one in found)}",
                )
    known = [one for each in sources for one in each.names]
    raise LandingError(
        "table-unknown",
        f"unknown table {shown(name)}: none of its changes has landed",
        hint=did_you_mean(name, known) or "headgate tables lists all tables",
    )
