"""Where records came from, kept beside their columns."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headgate.envelope.opened import Group
from headgate.schema.registry import SchemaKey


@dataclass(frozen=True)
class Origins:
    """The origin of some records: their rows in the portion, and their metadata columns."""

    rows: np.ndarray
    columns: pa.RecordBatch

    def place(self, position: int) -> str:
        """Where a record came from, as people write it."""
        row = {name: self.columns[name][position].as_py() for name in self.columns.schema.names}
        known = (row.get(name) for name in ("_topic", "_partition", "_offset"))
        return ":".join(str(each) for each in known if each is not None) or "one of them"

    def without(self, bad: Collection[int]) -> Origins:
        if not bad:
            return self
        kept = np.delete(np.arange(len(self.rows)), list(bad))
        return Origins(self.rows[kept], self.columns.take(pa.array(kept)))


class AllOrigins:
    """The origins of a portion's records, for as many of its groups at a time as are wanted."""

    def __init__(self, records: pa.Table, opened: np.ndarray) -> None:
        self._opened = opened
        self._columns = {
            name: records.column(name)
            for name in records.column_names
            # A column of nothing but nulls costs a file as much as a full one, and says less.
            if name != "value" and records.column(name).null_count < len(records)
        }
        self._of_one_text = {
            name
            for name, column in self._columns.items()
            if pa.types.is_string(column.type) and len(column.unique()) == 1
        }

    def of(self, groups: Sequence[Group]) -> list[Origins]:
        """One for each group. One copy for all of them, then views of it: groups can be many."""
        rows = self._opened[np.concatenate([group.rows for group in groups])]
        at = pa.array(rows)
        columns = [self._values_at(name, at) for name in self._columns]
        batch = pa.record_batch(columns, [f"_{name}" for name in self._columns])
        origins, start = [], 0
        for group in groups:
            end = start + len(group.rows)
            origins.append(Origins(rows[start:end], batch.slice(start, end - start)))
            start = end
        return origins

    def _values_at(self, name: str, rows: pa.Array) -> pa.Array:
        """In one piece. Most records come from one topic: where all texts are one, any will do."""
        column = self._columns[name]
        values = column.slice(0, len(rows)) if name in self._of_one_text else column.take(rows)
        return pa.concat_arrays(values.chunks)


@dataclass(frozen=True)
class Part:
    """Columns of one schema, and where their records came from."""

    columns: pa.RecordBatch
    origin: Origins
    key: SchemaKey

    @property
    def schema_id(self) -> int | None:
        return self.key if isinstance(self.key, int) else None


def joined(parts: Sequence[Part]) -> list[tuple[pa.Table, tuple[int, ...]]]:
    """The rows of a file and their schema ids: one file, unless schemas differ about types."""
    if not parts:
        return []
    try:
        messages = pa.concat_tables(
            [pa.Table.from_batches([part.columns]) for part in parts], promote_options="default"
        )
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return [one for part in parts for one in joined([part])]
    origin = pa.Table.from_batches([part.origin.columns for part in parts])
    ids = pa.chunked_array(
        [pa.repeat(pa.scalar(part.schema_id, pa.int64()), len(part.origin.rows)) for part in parts]
    )
    rows = pa.table(
        [*messages.columns, *origin.columns, ids],
        names=[*messages.column_names, *origin.column_names, "_schema_id"],
    )
    known = {part.schema_id for part in parts if part.schema_id is not None}
    return [(rows, tuple(sorted(known)))]
