"""The rejected changes of one file as rows of the quarantine, each once however often it is read.

A change is identified by the path of its file, its position and its bytes. A file with too many
rejected changes is quarantined itself: a replay reads it whole, and skips what has landed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import blake2b

import pyarrow as pa

from headgate.cdc.plan import ChangePlan
from headgate.engine.quarantine_table import quarantine_rows
from headgate.envelopes.datastream.changes import MAX_REJECTED, MAX_REJECTED_SIZE
from headgate.envelopes.opened import Rejected
from headgate.lake.parquet import column_of
from headgate.lake.query import quoted
from headgate.lake.snapshot import Snapshot
from headgate.reasons import Reason

_ID_BYTES = 16


@dataclass
class Rejections:
    """Rejected changes: kept up to a limit, and counted."""

    count: int = 0
    positions: list[int | None] = field(default_factory=list)
    """None for a rejection of the whole file."""
    raw: dict[int, bytes] = field(default_factory=dict)
    """Files with only the record, by position."""
    _kept: list[Rejected] = field(default_factory=list)
    _reasons: Counter[Reason] = field(default_factory=Counter)
    _first: dict[Reason, Rejected] = field(default_factory=dict)
    _routes: set[str | None] = field(default_factory=set)

    def add(
        self, reason: Reason, detail: str, route: str | None = None, position: int | None = None
    ) -> None:
        self.count += 1
        self._reasons[reason] += 1
        self._routes.add(route)
        rejected = Rejected(0, reason, detail, route)
        self._first.setdefault(reason, rejected)
        if len(self._kept) < MAX_REJECTED:
            self._kept.append(rejected)
            self.positions.append(position)

    @property
    def are_too_many(self) -> bool:
        """Whether the file is quarantined instead of its records."""
        size = sum(map(len, self.raw.values()))
        return self.count > MAX_REJECTED or size > MAX_REJECTED_SIZE

    @property
    def without_bytes(self) -> list[int]:
        """Positions of records whose bytes are yet to be extracted."""
        return [at for at in self.positions if at is not None and at not in self.raw]

    def extract(self, records: Iterable[tuple[int, bytes]]) -> None:
        """Add the bytes of records, until they are too many."""
        size = sum(map(len, self.raw.values()))
        for position, content in records:
            self.raw[position] = content
            size += len(content)
            if size > MAX_REJECTED_SIZE:
                return

    def as_one(self) -> Rejected:
        """Return one rejection for all of them, with the most frequent reason."""
        reason = self._reasons.most_common(1)[0][0]
        first = self._first[reason]
        if self.count == 1:
            return first
        (route,) = self._routes if len(self._routes) == 1 else (None,)
        detail = f"{self.count} changes of it, the first: {first.detail}"
        return replace(first, detail=detail, route=route)

    def rows(
        self, plan: ChangePlan, record: pa.Table, content: bytes | None, size: int, known: set[str]
    ) -> pa.Table:
        """Return the rows of the quarantine for a file, except for the known ones.

        `record` is the row of the file, and `content` its bytes, unless they are too many.
        """
        path = record["file"][0].as_py()
        rejected, positions = self._kept, self.positions
        values = [content if at is None else self.raw.get(at) for at in positions]
        if self.are_too_many:
            rejected, positions, values = [self.as_one()], [None], [content]
        ids = [_identity(path, *one, size) for one in zip(positions, values, strict=True)]
        new = [at for at, one in enumerate(ids) if one not in known]
        columns = {
            "value": pa.array([values[at] for at in new], pa.binary()),
            "offset": pa.array([positions[at] for at in new], pa.int64()),
        }
        origin = record.drop_columns(list(columns)).take(pa.array([0] * len(new), pa.int64()))
        for name, values_of_rows in columns.items():
            origin = origin.append_column(name, values_of_rows)
        return quarantine_rows(
            origin.select(record.column_names),
            [replace(rejected[at], row=row) for row, at in enumerate(new)],
            plan.version,
            pa.scalar(datetime.now(UTC), pa.timestamp("us", "UTC")),
            ids=[ids[at] for at in new],
        )


def _identity(path: str, position: int | None, value: bytes | None, size: int) -> str:
    """Return the id of a rejected record; a file whose bytes are not kept has those of its size."""
    digest = blake2b(digest_size=_ID_BYTES)
    content = str(size).encode() if position is None and value is None else value or b""
    for part in (path.encode("utf-8", "surrogateescape"), str(position).encode(), content):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()


def known_rejections(plan: ChangePlan, path: str, first_batch: int) -> set[str]:
    """Return the ids of a file's rows in the quarantine, in any state.

    They are in batches since the one that first read the file, or in files that wait for their
    commit.
    """
    known: set[str] = set()
    for pending in plan.waiting.get(plan.quarantine, ()):
        known.update(column_of(pending, "id"))
    table = Snapshot.newest(plan.lake, plan.quarantine)
    if table is not None:
        where = f"_batch >= {first_batch} AND _file = {quoted(path)}"
        found = table.query(f"SELECT id FROM stored WHERE {where}").read_all()
        known.update(found["id"].to_pylist())
    return known
