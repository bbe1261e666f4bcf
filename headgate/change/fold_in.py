"""A small merged table, all of it in memory, with changes folded into its rows: pure.

A row is a change that counted once. So rows and changes together are folded as changes are, and
what is left is the table.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.change.fold import ends_of_runs
from headgate.change.table_key import TableKey


@dataclass(frozen=True)
class FoldedIn:
    """The rows afterwards, and what happened to them."""

    rows: pa.Table
    inserted: int
    updated: int
    deleted: int


def fold_in(rows: pa.Table, changes: pa.Table, key: TableKey) -> FoldedIn:
    """Both with their orders; changes say whether they are deletions, in a column more."""
    before = rows.append_column("_is_deleted", pa.array(np.zeros(len(rows), bool)))
    together = pa.concat_tables([before, changes.select(before.column_names)])
    by = [(name, "ascending") for name in (*key.columns, "_order")]
    order = pc.sort_indices(together, by).to_numpy()
    ordered = together.take(pa.array(order))
    if not len(ordered):
        return FoldedIn(rows, 0, 0, 0)
    last = ends_of_runs(ordered, key)
    starts = np.concatenate([[0], np.flatnonzero(last)[:-1] + 1])
    was_there = np.add.reduceat(order < len(rows), starts) > 0
    is_new = order[last] >= len(rows)
    gone = ordered["_is_deleted"].to_numpy(zero_copy_only=False)[last]
    left = ordered.filter(pa.array(last)).filter(pa.array(~gone)).select(rows.column_names)
    return FoldedIn(
        left,
        inserted=int((is_new & ~gone & ~was_there).sum()),
        updated=int((is_new & ~gone & was_there).sum()),
        deleted=int((is_new & gone & was_there).sum()),
    )
