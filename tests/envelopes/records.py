"""Records as sources give them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from headgate.schema.origin import RECORD_COLUMNS

Headers = Mapping[str, bytes | None] | None


def records(
    values: Sequence[bytes],
    topics: Sequence[str | None] | None = None,
    headers: Sequence[Headers] | None = None,
) -> pa.Table:
    given = headers or [None] * len(values)
    return pa.table(
        {
            "value": values,
            "topic": topics or ["games"] * len(values),
            "partition": [0] * len(values),
            "offset": range(len(values)),
            "timestamp": [0] * len(values),
            "key": [None] * len(values),
            "headers": [
                None
                if one is None
                else [{"key": key, "value": value} for key, value in one.items()]
                for one in given
            ],
        },
        schema=RECORD_COLUMNS,
    )
