"""What a pipeline knows of the tables that it has landed changes of."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headgate.envelopes.datastream.changes import SourceTable
from headgate.lake.ledger import LedgerSnapshot
from headgate.lake.ledger_entries import Kind
from headgate.lake.snapshot import Snapshot
from headgate.lake.staged import StagedFile
from headgate.lake.tables import TableError

_SIDE_BY_SIDE = 16
_NEWEST = "max._source_timestamp"


@dataclass(frozen=True)
class KnownSource:
    """A source table that has a change log."""

    source: SourceTable
    lineages: tuple[str, ...] = ()
    """In the order in which they took over from each other."""
    newest: datetime | None = None
    """By the source's clock."""

    def joined(self, other: KnownSource) -> KnownSource:
        """With what was learnt since."""
        moments = [one for one in (self.newest, other.newest) if one is not None]
        return KnownSource(self.source, other.lineages or self.lineages, max(moments, default=None))


def known_by(files: Sequence[StagedFile]) -> KnownSource:
    """What the files of one log say of its source."""
    route = files[0].route
    assert route is not None
    lineages = max((file.lineages for file in files), default=())
    return KnownSource(source_of(route), lineages, newest_in(file.statistics for file in files))


def route_of(source: SourceTable) -> str:
    """A source table as one text, which names no other."""
    return json.dumps([source.database, source.schema, source.table], ensure_ascii=False)


def source_of(route: str) -> SourceTable:
    return SourceTable(*json.loads(route))


def known_logs(ledger: LedgerSnapshot, lake: str) -> dict[str, KnownSource]:
    """Return every log in the ledger, with the time of its newest change."""
    known = {
        one.table: KnownSource(source_of(one.route), one.lineages)
        for one in ledger.tables(Kind.TABLE).values()
        if one.route is not None
    }
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        newest = pool.map(lambda table: _newest(lake, table), known)
    return {
        table: replace(one, newest=moment)
        for (table, one), moment in zip(known.items(), newest, strict=True)
    }


def _newest(lake: str, table: str) -> datetime | None:
    try:
        log = Snapshot.open(lake, table)
    except TableError:
        return None
    added = None if log is None else log.statistics()
    if added is None or _NEWEST not in added.column_names:
        return None
    newest: datetime | None = pc.max(added[_NEWEST].cast(pa.timestamp("us", "UTC"))).as_py()
    return newest


def newest_in(statistics: Iterable[str]) -> datetime | None:
    """The newest source time that the statistics of files tell of."""
    moments = []
    for told in statistics:
        newest: Mapping[str, Any] = json.loads(told).get("maxValues", {})
        if text := newest.get("_source_timestamp"):
            moments.append(datetime.fromisoformat(str(text).replace("Z", "+00:00")))
    return max((one.astimezone(UTC) for one in moments), default=None)
