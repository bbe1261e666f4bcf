"""The change log of one source table: every change once, in the order in which they landed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headgate.cdc.fold import KnownRows, by_row_id_alone
from headgate.cdc.key import ROW_ID, TableKey
from headgate.lake.snapshot import Snapshot


@dataclass(frozen=True)
class ChangeLog(Snapshot):
    """A change log at one version."""

    def rows_by_id(self, key: TableKey) -> KnownRows:
        """Return a function that looks up the changes of rows by their row IDs."""
        columns = [*key.columns, ROW_ID, "_order"]

        def known_rows(row_ids: Collection[str]) -> pa.Table:
            wanted = pa.array(sorted(row_ids), pa.string())
            found = [
                portion.filter(pc.is_in(portion[ROW_ID], value_set=wanted))
                for portion in self.portions(columns)
            ]
            return pa.Table.from_batches(found, self.selected(columns))

        return known_rows

    def by_row_id_alone(self, key: TableKey) -> list[pa.Table]:
        """Return the deletions that name only a row ID."""
        names = [*key.columns, ROW_ID, "_order", "_is_deleted", "_source_timestamp"]
        columns = [name for name in dict.fromkeys(names) if name in self.schema.names]
        found = [self.selected(columns).empty_table()]
        if ROW_ID in columns and not key.by_row_id:
            for portion in self.portions(columns):
                rows = pa.Table.from_batches([portion])
                found.append(rows.filter(pa.array(by_row_id_alone(rows, key))))
        return found
