"""Records in quarantine: how many, which, and all about one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from headgate.errors import LandingError
from headgate.inspect.query_table import query_table
from headgate.inspect.record_position import Position
from headgate.pipeline import Pipeline
from headgate.quarantine.quarantined import QUARANTINE
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
    table = _open(pipeline)
    if table is None:
        return {}
    column = query_table(table, QUARANTINE, columns=["reason"]).column("reason")
    reasons = column.value_counts().to_pylist()
    counted = {each["values"]: each["counts"] for each in reasons}
    return dict(sorted(counted.items(), key=lambda each: (-each[1], each[0])))


def read_quarantined(
    pipeline: Pipeline, *, reason: str | None = None, route: str | None = None, limit: int = 20
) -> tuple[list[QuarantinedRecord], int]:
    """The newest ones, as many as asked for, and how many there are in all."""
    rows = _rows(pipeline, {"reason": reason} if reason else {})
    if route is not None:
        rows = rows.filter(pa.array([_is_of(pipeline, each, route) for each in _routes(rows)]))
    order = [("_batch", "descending"), ("_topic", "ascending"), ("_partition", "ascending")]
    newest = rows.sort_by([*order, ("_offset", "ascending")]).slice(0, limit)
    return [_record(row) for row in newest.to_pylist()], rows.num_rows


def find_quarantined(pipeline: Pipeline, position: Position) -> list[QuarantinedRecord]:
    """All that is known of the record at a position; an error if it is not in quarantine."""
    rows = _rows(
        pipeline,
        {
            "_topic": position.topic,
            "_partition": position.partition,
            "_offset": position.offset,
        },
    )
    if rows.num_rows == 0:
        raise LandingError(
            "record-unknown",
            f"record {position} is not in quarantine",
            hint="headgate quarantine list shows those that are",
            where=str(Path(pipeline.lake, pipeline.quarantine)),
        )
    return [_record(row) for row in rows.to_pylist()]


def _rows(pipeline: Pipeline, where: Mapping[str, str | int]) -> pa.Table:
    table = _open(pipeline)
    return QUARANTINE.empty_table() if table is None else query_table(table, QUARANTINE, where)


def _open(pipeline: Pipeline) -> DeltaTable | None:
    path = Path(pipeline.lake, pipeline.quarantine)
    try:
        return DeltaTable(str(path))
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as error:
        raise LandingError(
            "lake-unreadable",
            f"the quarantine cannot be read: {str(error).splitlines()[0]}",
            where=str(path),
        ) from error


def _routes(rows: pa.Table) -> list[str | None]:
    return list(rows.column("route").to_pylist())


def _is_of(pipeline: Pipeline, route: str | None, wanted: str) -> bool:
    """Whether a record would have gone to the route or table asked for."""
    if route is None or route == wanted:
        return route == wanted
    names = TableNames(pipeline.silver, pipeline.quarantine, pipeline.ledger, pipeline.bronze)
    return names.silver_for(route) == wanted


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
