from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.engine.quarantine_table import QUARANTINE, quarantine_rows
from headgate.envelopes.opened import Rejected
from headgate.reasons import Reason
from headgate.schema.origin import SOURCE_COLUMNS

AT = datetime(2026, 1, 2, tzinfo=UTC)
RECORDS = pa.table(
    {
        "value": [b"a", None, b"\xff"],
        "topic": ["games"] * 3,
        "partition": [1] * 3,
        "offset": [10, 11, 12],
        "timestamp": [AT] * 3,
        "key": [b"k", None, None],
        "headers": [[{"key": "h", "value": b"v"}], None, []],
        "file": [None] * 3,
    },
    schema=SOURCE_COLUMNS,
)


def rows(*rejected: Rejected) -> list[dict[str, Any]]:
    at = pa.scalar(AT, pa.timestamp("us", "UTC"))
    table = quarantine_rows(RECORDS, rejected, 4, at, np.array([2]))
    assert table.schema == QUARANTINE
    return list(table.to_pylist())


def test_row_has_the_raw_bytes_the_origin_and_the_reason() -> None:
    [row] = rows(Rejected(2, Reason.PAYLOAD_UNDECODABLE, "truncated", "chess", 7))
    assert len(row.pop("id")) == 32
    assert row == {
        "state": "open",
        "reason": "payload_undecodable",
        "detail": "truncated",
        "route": "chess",
        "schema_id": "7",
        "value": b"\xff",
        "_topic": "games",
        "_partition": 1,
        "_offset": 12,
        "_timestamp": AT,
        "_key": None,
        "_headers": [],
        "_file": None,
        "_batch": 4,
        "_at": AT,
        "settled_at": None,
        "in_bronze": True,
    }


def test_unknown_values_are_null() -> None:
    [row] = rows(Rejected(1, Reason.NULL_VALUE))
    assert [row[name] for name in ("value", "detail", "route", "schema_id")] == [None] * 4


def test_key_and_headers_are_kept() -> None:
    [row] = rows(Rejected(0, Reason.TOO_LARGE, schema_key="11111111-2222-3333-4444-555555555555"))
    assert row["_key"] == b"k"
    assert row["_headers"] == [{"key": "h", "value": b"v"}]
    assert row["schema_id"] == "11111111-2222-3333-4444-555555555555"


def test_rows_come_in_the_order_of_the_rejections() -> None:
    found = rows(Rejected(2, Reason.TOO_LARGE), Rejected(0, Reason.NULL_VALUE))
    assert [row["_offset"] for row in found] == [12, 10]


def test_route_and_detail_are_cut_and_valid_unicode() -> None:
    [row] = rows(Rejected(0, Reason.ROUTE_UNUSABLE, "\ud800" + "x" * 9999, "\ud800" + "x" * 9999))
    assert row["route"] == row["detail"] == "?" + "x" * 511


def test_every_row_has_an_id_of_its_own() -> None:
    found = rows(*[Rejected(0, Reason.TOO_LARGE)] * 100)
    assert len({row["id"] for row in found}) == 100


def test_row_has_whether_bronze_has_the_record() -> None:
    found = rows(Rejected(2, Reason.TOO_LARGE), Rejected(0, Reason.TOO_LARGE))
    assert [row["in_bronze"] for row in found] == [True, False]
    unknown = quarantine_rows(RECORDS, [Rejected(0, Reason.TOO_LARGE)], 4, pa.scalar(AT))
    assert unknown["in_bronze"].to_pylist() == [None]
