"""Which decoded rows a table takes, and in which form, by its contract."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headgate.schema.change import Outcome, SchemaChange
from headgate.schema.conform import conform, rows_with
from headgate.schema.decoder import only_length
from headgate.schema.fit import Fit


@dataclass(frozen=True)
class Admitted:
    """Rows under the table's names and types, and what stayed out."""

    columns: pa.RecordBatch
    kept_out: dict[int, SchemaChange]
    """Rows that go to the quarantine, and the change that keeps each of them out."""
    withheld: tuple[tuple[SchemaChange, int], ...]
    """Changes that the contract withholds, and how many rows had such a value."""


def admit(columns: pa.RecordBatch, fitted: Fit) -> Admitted:
    """A row is kept out for what it carries; a refused schema keeps all of its rows out."""
    kept_out: dict[int, SchemaChange] = {}
    carrying = [(change, _carrying(columns, change)) for change in fitted.withheld]
    for change, rows in carrying:
        if change.outcome is not Outcome.DISCARDED:
            for row in np.flatnonzero(rows):
                kept_out.setdefault(int(row), change)
    admitted = _placed(columns, fitted)
    if kept_out:
        admitted = admitted.take(pa.array(np.delete(np.arange(len(columns)), list(kept_out))))
    return Admitted(
        admitted, kept_out, tuple((change, int(rows.sum())) for change, rows in carrying)
    )


def _carrying(columns: pa.RecordBatch, change: SchemaChange) -> np.ndarray:
    if change.outcome is Outcome.REFUSED:
        return np.ones(len(columns), bool)
    column, *path = change.column.split(".")
    return rows_with(columns.column(column), path)


def _placed(columns: pa.RecordBatch, fitted: Fit) -> pa.RecordBatch:
    if fitted.file_fits_as_it_is and len(fitted.placed) == columns.num_columns:
        return columns
    if not fitted.placed:
        return only_length(len(columns))
    arrays = [columns.column(one.source) for one in fitted.placed]
    conformed = [
        array if one.type is None else conform(array, one.type)
        for array, one in zip(arrays, fitted.placed, strict=True)
    ]
    return pa.RecordBatch.from_arrays(conformed, [one.target for one in fitted.placed])
