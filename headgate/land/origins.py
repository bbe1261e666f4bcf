"""Where the records of a group came from, kept beside their columns."""

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

    @classmethod
    def of(cls, records: pa.Table, groups: Sequence[Group], opened: np.ndarray) -> list[Origins]:
        """One for each group. One copy for all groups, then views of it: groups can be many."""
        if not groups:
            return []
        rows = opened[np.concatenate([group.rows for group in groups])]
        names = [
            name
            for name in records.column_names
            # A column of nothing but nulls costs a file as much as a full one, and says less.
            if name != "value" and records.column(name).null_count < len(records)
        ]
        columns = records.select(names).take(pa.array(rows)).combine_chunks()
        batch = pa.record_batch(
            [column.chunk(0) for column in columns.columns], [f"_{name}" for name in names]
        )
        origins, start = [], 0
        for group in groups:
            end = start + len(group.rows)
            origins.append(cls(rows[start:end], batch.slice(start, end - start)))
            start = end
        return origins

    def without(self, bad: Collection[int]) -> Origins:
        if not bad:
            return self
        kept = np.delete(np.arange(len(self.rows)), list(bad))
        return Origins(self.rows[kept], self.columns.take(pa.array(kept)))

    def beside(self, columns: pa.RecordBatch, key: SchemaKey) -> pa.Table:
        """The message's columns, then where each record came from."""
        names = [*columns.schema.names, *self.columns.schema.names]
        arrays = [*columns.columns, *self.columns.columns]
        if isinstance(key, int):
            names.append("_schema_id")
            arrays.append(pa.repeat(pa.scalar(key, pa.int64()), len(self.rows)))
        return pa.table(arrays, names=names)
