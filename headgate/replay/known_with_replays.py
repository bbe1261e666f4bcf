"""What is known of change logs, whether a run or a replay landed in them."""

from __future__ import annotations

from headgate.change.known_source import KnownSource, known_logs
from headgate.land.ledger import Ledger
from headgate.pipeline import ChangePipeline
from headgate.replay.replay_names import name_in_ledger


def known_with_replays(pipeline: ChangePipeline) -> dict[str, KnownSource]:
    """By change log. A replay may have made one that no run has seen yet."""
    known: dict[str, KnownSource] = {}
    for name in (pipeline.name, name_in_ledger(pipeline.name)):
        ledger = Ledger(pipeline.lake, pipeline.ledger, name)
        for table, found in known_logs(ledger, pipeline.lake).items():
            known[table] = _joined(known[table], found) if table in known else found
    return known


def _joined(one: KnownSource, other: KnownSource) -> KnownSource:
    """Who knows of more lineages learnt of them later."""
    earlier, later = sorted((one, other), key=lambda known: len(known.lineages))
    return earlier.joined(later)
