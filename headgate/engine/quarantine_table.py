"""The quarantine table: its columns, and the rows of rejected records."""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headgate.schema.origin import SOURCE_COLUMNS

if TYPE_CHECKING:
    from headgate.envelopes.opened import Rejected


class QuarantineState(StrEnum):
    """The state of a record in the quarantine. Records are never deleted."""

    OPEN = "open"
    REPLAYED = "replayed"
    """Landed by a replay."""
    DROPPED = "dropped"
    """Given up: its bytes are deleted, its origin and reason are kept."""


QUARANTINE = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("state", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("detail", pa.string()),
        pa.field("route", pa.string()),
        pa.field("schema_id", pa.string()),
        pa.field("value", pa.binary()),
        *(
            pa.field(f"_{field.name}", field.type)
            for field in SOURCE_COLUMNS
            if field.name != "value"
        ),
        pa.field("_batch", pa.int64()),
        pa.field("_at", pa.timestamp("us", "UTC")),
        pa.field("settled_at", pa.timestamp("us", "UTC")),
        pa.field("in_bronze", pa.bool_()),
    ]
)

_ID_BYTES = 16
_MAX_TEXT = 512


def quarantine_rows(
    records: pa.Table,
    rejected: Sequence[Rejected],
    batch: int,
    at: pa.Scalar,
    in_bronze: np.ndarray | None = None,
    ids: Sequence[str] | None = None,
) -> pa.Table:
    """Return the rejected records as rows of the quarantine: raw bytes, origin and reason.

    `in_bronze` are the rows that the bronze table has too; None if that is unknown. `ids` are those
    of records whose source gives them an identity; all others get random ones.
    """
    rows = [one.row for one in rejected]
    taken = records.take(pa.array(rows, pa.int64()))
    count = len(rejected)
    columns = {
        "id": pa.array(_new_ids(count) if ids is None else ids, pa.string()),
        "state": pa.repeat(pa.scalar(QuarantineState.OPEN.value, pa.string()), count),
        "reason": pa.array([one.reason.value for one in rejected], pa.string()),
        "detail": pa.array([_text(one.detail) or None for one in rejected], pa.string()),
        "route": pa.array([_text(one.route) for one in rejected], pa.string()),
        "schema_id": pa.array(
            [None if one.schema_key is None else str(one.schema_key) for one in rejected],
            pa.string(),
        ),
        "_batch": pa.repeat(pa.scalar(batch, pa.int64()), count),
        "_at": pa.repeat(at, count),
        "settled_at": pa.nulls(count, pa.timestamp("us", "UTC")),
        "in_bronze": pa.nulls(count, pa.bool_())
        if in_bronze is None
        else pa.array(np.isin(rows, in_bronze), pa.bool_()),
    }
    for field in SOURCE_COLUMNS:
        name = field.name if field.name == "value" else f"_{field.name}"
        columns[name] = taken.column(field.name)
    return pa.table([columns[name] for name in QUARANTINE.names], schema=QUARANTINE)


def _new_ids(count: int) -> list[str]:
    """Return random ids: not every source gives its records unique positions."""
    digits = os.urandom(_ID_BYTES * count).hex()
    length = 2 * _ID_BYTES
    return [digits[start : start + length] for start in range(0, len(digits), length)]


def _text(value: str | None) -> str | None:
    """Return a text as UTF-8 that is not too long."""
    return None if value is None else value[:_MAX_TEXT].encode("utf-8", "replace").decode()
