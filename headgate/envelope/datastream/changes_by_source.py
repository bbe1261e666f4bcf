"""Changes put together by the table they are of."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from headgate.envelope.datastream.opened_file import (
    MOST_TABLES,
    Changes,
    SourceTable,
    UnreadableFile,
)

Positions = np.ndarray[tuple[int], np.dtype[np.int64]]
_SOURCE = ("_database", "_schema", "_table")


class ChangesBySource:
    """Changes of all source tables in a file; those of one table have one schema."""

    def __init__(self) -> None:
        self._parts: dict[SourceTable, list[Changes]] = {}

    def add(self, metadata: pa.RecordBatch, payload: pa.RecordBatch, positions: Positions) -> None:
        """Add changes in the order of the file."""
        for rows in _rows_by_source(metadata):
            part, row = metadata, payload
            if len(rows) < len(metadata):
                part, row = metadata.take(rows), payload.take(rows)
            source = SourceTable(*(part[name][0].as_py() for name in _SOURCE))
            found = Changes(source, part, row, positions[rows])
            self._parts.setdefault(source, []).append(found)
        if len(self._parts) > MOST_TABLES:
            raise UnreadableFile(f"it has changes of more than {MOST_TABLES} tables")

    def joined(self) -> list[Changes]:
        """One for each source table, in the order in which they came."""
        return [parts[0] if len(parts) == 1 else _joined(parts) for parts in self._parts.values()]


def _rows_by_source(metadata: pa.RecordBatch) -> Iterator[Positions]:
    if not len(metadata):
        return
    codes = np.zeros(len(metadata), np.int64)
    for name in _SOURCE:
        words = metadata[name].dictionary_encode(null_encoding="encode")
        if len(words.dictionary) > 1:
            both = codes * len(words.dictionary) + words.indices.to_numpy()
            codes = np.unique(both, return_inverse=True)[1]
    if codes.max() >= MOST_TABLES:
        raise UnreadableFile(f"it has changes of more than {MOST_TABLES} tables")
    firsts = np.unique(codes, return_index=True)[1]
    for first in np.sort(firsts):
        yield np.flatnonzero(codes == codes[first])


def _joined(parts: list[Changes]) -> Changes:
    return Changes(
        parts[0].source,
        pa.concat_batches([one.metadata for one in parts]),
        pa.concat_batches([one.payload for one in parts]),
        np.concatenate([one.positions for one in parts]),
    )
