"""Records in quarantine: how many, which, and all about one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from headgate.errors import LandingError
from headgate.inspect.query_table import query_table, quoted
from headgate.inspect.record_position import Position
from headgate.pipeline import Pipeline
from headgate.route.table_names import TableNames


@dataclass(frozen=True)
class QuarantinedRecord:
    """A record that could not land, and why."""

    position: Position | None
    """None where the source does not number its records."""
    reason: str
    detail: str | None
    route: str | None
    schema_id: str | None
    timestamp: datetime | None
    """When the source got it."""
    at: datetime
    """When it was put in quarantine."""
    batch: int
    value: bytes | None
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def count_by_reason(pipeline: Pipeline) -> dict[str, int]:
    """Most frequent first."""
    rows = _query(
        pipeline,
        "SELECT reason, count(*) AS count FROM stored GROUP BY reason ORDER BY count DESC, reason",
    )
    return {row["reason"]: row["count"] for row in rows}


def read_quarantined(
    pipeline: Pipeline, *, reason: str | None = None, route: str | None = None, limit: int = 20
) -> tuple[list[QuarantinedRecord], int]:
    """Those of the newest batches, as many as asked for, and how many there are in all."""
    conditions = ["true"]
    if reason is not None:
        conditions.append(f"reason = {quoted(reason)}")
    if route is not None:
        routes = [quoted(each) for each in _routes_of(pipeline, route)]
        conditions.append(f"route IN ({', '.join(routes)})")
    where = " AND ".join(conditions)
    count = _query(pipeline, f"SELECT count(*) AS count FROM stored WHERE {where}")
    rows = _query(
        pipeline,
        f"""
        SELECT * FROM stored WHERE {where}
        ORDER BY _batch DESC, _topic, _partition, _offset LIMIT {limit}
        """,
    )
    return [_record(row) for row in rows], count[0]["count"] if count else 0


def find_quarantined(pipeline: Pipeline, position: Position) -> list[QuarantinedRecord]:
    """All that is known of the record at a position; an error if it is not in quarantine."""
    rows = _query(
        pipeline,
        f"""
        SELECT * FROM stored WHERE _topic = {quoted(position.topic)}
        AND _partition = {position.partition} AND _offset = {position.offset}
        """,
    )
    if not rows:
        raise LandingError(
            "record-unknown",
            f"record {position} is not in quarantine",
            hint="headgate quarantine list shows those that are",
            where=str(Path(pipeline.lake, pipeline.quarantine)),
        )
    return [_record(row) for row in rows]


def _routes_of(pipeline: Pipeline, wanted: str) -> list[str]:
    """A route by its own name, or by that of the table it would have gone to."""
    names = TableNames(pipeline.silver, pipeline.quarantine, pipeline.ledger, pipeline.bronze)
    known = _query(pipeline, "SELECT DISTINCT route FROM stored WHERE route IS NOT NULL")
    routes = [str(row["route"]) for row in known]
    return [wanted, *(route for route in routes if names.silver_for(route) == wanted)]


def _query(pipeline: Pipeline, sql: str) -> list[dict[str, Any]]:
    path = str(Path(pipeline.lake, pipeline.quarantine))
    try:
        return query_table(DeltaTable(path), sql)
    except TableNotFoundError:
        return []
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise LandingError(
            "lake-unreadable",
            f"the quarantine cannot be read: {str(error).splitlines()[0]}",
            where=path,
        ) from error


def _record(row: dict[str, Any]) -> QuarantinedRecord:
    numbered = row["_topic"] is not None and row["_offset"] is not None
    return QuarantinedRecord(
        position=Position(row["_topic"], row["_partition"] or 0, row["_offset"])
        if numbered
        else None,
        reason=row["reason"],
        detail=row["detail"],
        route=row["route"],
        schema_id=row["schema_id"],
        timestamp=row["_timestamp"],
        at=row["_at"],
        batch=row["_batch"],
        value=row["value"],
        key=row["_key"],
        headers=tuple((each["key"], each["value"]) for each in row["_headers"] or ()),
    )
