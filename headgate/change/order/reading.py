"""How changes were read, told from their read method: from which kind of source, and whether as
rows of a backfill."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


class Reading(IntEnum):
    """What an order is made of depends on this."""

    UNKNOWN = 0
    BACKFILL = 1
    MYSQL = 2
    ORACLE = 3
    POSTGRESQL = 4


SOURCES = {
    Reading.MYSQL: r"\A(mysql|mariadb)[-_]",
    Reading.ORACLE: r"\Aoracle[-_]",
    Reading.POSTGRESQL: r"\Apostgres",
}
_BACKFILL = "backfill|dump"


def rows_by_reading(changes: pa.RecordBatch) -> dict[Reading, np.ndarray]:
    """The rows that were read in each way; all rows stand under one."""
    methods = changes.column("_read_method").dictionary_encode()
    sources = [_matches(methods.dictionary, pattern) for pattern in SOURCES.values()]
    backfill = _matches(methods.dictionary, _BACKFILL) & np.logical_or.reduce(sources)
    readings = np.select([backfill, *sources], [Reading.BACKFILL, *SOURCES], Reading.UNKNOWN)
    readings = np.append(readings, Reading.UNKNOWN)
    of_rows = readings[methods.indices.fill_null(-1).to_numpy()]
    return {Reading(found): np.flatnonzero(of_rows == found) for found in np.unique(of_rows)}


def _matches(methods: pa.Array, pattern: str) -> np.ndarray:
    matching = pc.match_substring_regex(methods, pattern, ignore_case=True)
    return np.asarray(matching.to_numpy(zero_copy_only=False), dtype=bool)
