"""Records in quarantine: counts, lists, and single records."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

import pyarrow as pa

from headgate.config import PipelineConfig
from headgate.engine.quarantine_table import QuarantineState
from headgate.errors import LandingError, UsageError
from headgate.inspect.tables import names_of_route, shown_route
from headgate.lake.query import python_rows, query_table
from headgate.lake.tables import TableError, table_url
from headgate.quarantine.filter import OffsetRange, QuarantineFilter
from headgate.quarantine.snapshot import QuarantineSnapshot, unreadable


@dataclass(frozen=True)
class Position:
    """Topic, partition and offset of a record."""

    topic: str
    partition: int
    offset: int

    @classmethod
    def parse(cls, text: str) -> Self:
        topic, *numbers = text.rsplit(":", 2)
        if topic and len(numbers) == 2 and all(each.isdecimal() for each in numbers):
            return cls(topic, int(numbers[0]), int(numbers[1]))
        raise UsageError(
            "bad-argument",
            f"`{text}` is not the position of a record",
            hint="write topic:partition:offset as in `headgate quarantine list`: games:0:12",
        )

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}:{self.offset}"

    def condition(self) -> str:
        """Return the SQL condition for the rows of this record."""
        offsets = OffsetRange(self.topic, self.partition, self.offset, self.offset)
        return QuarantineFilter(offsets=offsets, state=None).condition()


@dataclass(frozen=True)
class FilePosition:
    """A change file, and the number of a change in it; None for the whole file."""

    file: str
    offset: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        file, _, number = text.rpartition(":")
        if file and number.isdecimal():
            return cls(file, int(number))
        if text:
            return cls(text)
        raise UsageError(
            "bad-argument",
            "the name of the record is empty",
            hint="write it as in `headgate quarantine list`: a path, or path:number",
        )

    def __str__(self) -> str:
        return self.file if self.offset is None else f"{self.file}:{self.offset}"

    def condition(self) -> str:
        """Return the SQL condition for the rows of this change, or of the whole file."""
        of_file = QuarantineFilter(file=self.file, state=None).condition()
        return of_file if self.offset is None else f"{of_file} AND _offset = {self.offset}"


@dataclass(frozen=True)
class QuarantinedRecord:
    """A record that could not land, why, and its state."""

    id: str
    position: Position | FilePosition | None
    """None if the source does not number its records."""
    state: QuarantineState
    settled_at: datetime | None
    """When it was replayed or dropped."""
    reason: str
    detail: str | None
    route: str | None
    """For changes, the table of the source."""
    schema_id: str | None
    timestamp: datetime | None
    """Timestamp of the source."""
    at: datetime
    """When it was put in quarantine."""
    batch: int
    value: bytes | None
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True)
class QuarantineCounts:
    """Number of records in quarantine, by reason, and of those that left it."""

    open: dict[str, int]
    """By reason, the most frequent first."""
    replayed: int
    dropped: int


def count_quarantined(pipeline: PipelineConfig) -> QuarantineCounts:
    snapshot = _open(pipeline)
    rows = _query(
        snapshot,
        """
        SELECT state, reason, count(*) AS count FROM stored
        GROUP BY state, reason ORDER BY count DESC, reason
        """,
    )

    def counted(state: QuarantineState) -> dict[str, int]:
        return {row["reason"]: row["count"] for row in rows if row["state"] == state}

    return QuarantineCounts(
        open=counted(QuarantineState.OPEN),
        replayed=sum(counted(QuarantineState.REPLAYED).values()),
        dropped=sum(counted(QuarantineState.DROPPED).values()),
    )


def read_quarantined(
    pipeline: PipelineConfig, wanted: QuarantineFilter | None = None, limit: int = 20
) -> tuple[list[QuarantinedRecord], int]:
    """Return the newest records that match, up to the limit, and the number of all that match."""
    snapshot = _open(pipeline)
    if snapshot is None:
        return [], 0
    return _read(pipeline, snapshot, _condition(snapshot, wanted or QuarantineFilter()), limit)


def find_quarantined(
    pipeline: PipelineConfig, position: Position | FilePosition
) -> list[QuarantinedRecord]:
    """Return every row for the record at a position; raise if it never was in quarantine."""
    snapshot = _open(pipeline)
    found = None if snapshot is None else _read(pipeline, snapshot, position.condition(), 20)
    if found is None or not found[0]:
        raise LandingError(
            "record-unknown",
            f"record {position} is not in quarantine",
            hint="headgate quarantine list lists records",
            where=table_url(pipeline.lake, pipeline.quarantine_table),
        )
    return found[0]


def _read(
    pipeline: PipelineConfig, snapshot: QuarantineSnapshot, where: str, limit: int
) -> tuple[list[QuarantinedRecord], int]:
    count = _query(snapshot, f"SELECT count(*) AS count FROM stored WHERE {where}")
    rows = _query(
        snapshot,
        f"""
        SELECT * FROM stored WHERE {where}
        ORDER BY _batch DESC, _topic, _partition, _file, _offset LIMIT {limit}
        """,
    )
    return [_record(pipeline, row) for row in rows], count[0]["count"]


def _open(pipeline: PipelineConfig) -> QuarantineSnapshot | None:
    return QuarantineSnapshot.open(
        pipeline.lake, pipeline.quarantine_table, names_of_route(pipeline)
    )


def _condition(snapshot: QuarantineSnapshot, wanted: QuarantineFilter) -> str:
    try:
        return snapshot.condition(wanted)
    except (TableError, OSError, pa.ArrowException) as error:
        raise unreadable(snapshot.table.url, error) from error


def _query(snapshot: QuarantineSnapshot | None, sql: str) -> list[dict[str, Any]]:
    if snapshot is None:
        return []
    try:
        return python_rows(query_table(snapshot.table.delta, sql))
    except (TableError, OSError, pa.ArrowException) as error:
        raise unreadable(snapshot.table.url, error) from error


def _record(pipeline: PipelineConfig, row: dict[str, Any]) -> QuarantinedRecord:
    return QuarantinedRecord(
        id=row["id"],
        position=_position(row),
        state=QuarantineState(row["state"]),
        settled_at=row["settled_at"],
        reason=row["reason"],
        detail=row["detail"],
        route=shown_route(pipeline, row["route"]),
        schema_id=row["schema_id"],
        timestamp=row["_timestamp"],
        at=row["_at"],
        batch=row["_batch"],
        value=row["value"],
        key=row["_key"],
        headers=tuple((each["key"], each["value"]) for each in row["_headers"] or ()),
    )


def _position(row: dict[str, Any]) -> Position | FilePosition | None:
    if row["_file"] is not None:
        return FilePosition(row["_file"], row["_offset"])
    if row["_topic"] is None or row["_offset"] is None:
        return None
    return Position(row["_topic"], row["_partition"] or 0, row["_offset"])
