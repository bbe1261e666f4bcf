"""The rows of the quarantine table."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from headgate.envelope.opened import Rejected
from headgate.schema.origin import SOURCE_COLUMNS

QUARANTINE = pa.schema(
    [
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
    ]
)


def quarantined(
    records: pa.Table, rejected: Sequence[Rejected], batch: int, at: pa.Scalar
) -> pa.Table:
    """The records that cannot land: their raw bytes, where they came from and why."""
    mine = records.take(pa.array([one.row for one in rejected], pa.int64()))
    columns = {
        "reason": pa.array([one.reason.value for one in rejected], pa.string()),
        "detail": pa.array([_text(one.detail) or None for one in rejected], pa.string()),
        "route": pa.array([_text(one.route) for one in rejected], pa.string()),
        "schema_id": pa.array(
            [None if one.schema_key is None else str(one.schema_key) for one in rejected],
            pa.string(),
        ),
        "_batch": pa.repeat(pa.scalar(batch, pa.int64()), len(rejected)),
        "_at": pa.repeat(at, len(rejected)),
    }
    for field in SOURCE_COLUMNS:
        name = field.name if field.name == "value" else f"_{field.name}"
        columns[name] = mine.column(field.name)
    return pa.table([columns[name] for name in QUARANTINE.names], schema=QUARANTINE)


def _text(said: str | None) -> str | None:
    """Never too long, and nothing in it that UTF-8 has no bytes for."""
    return None if said is None else said[:512].encode("utf-8", "replace").decode()
