"""Which changes of a file go to their log, in which columns and in which order."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.cdc.key import ROW_ID, key_columns
from headgate.cdc.order.orders import lineages, order
from headgate.cdc.plan import ChangePlan
from headgate.config import Mode
from headgate.engine.expectations import Expectations
from headgate.engine.stage_table import apply_contract, reason_of
from headgate.envelopes.datastream.changes import Changes
from headgate.lake.names import pattern_name
from headgate.lake.staged import BlockedSchemaChange, ExpectationResult
from headgate.reasons import Reason
from headgate.schema.changes import CreateTable
from headgate.schema.fit import fit, with_outcome

Why = tuple[Reason, str]


@dataclass(frozen=True)
class Admitted:
    """Rows of a log, and what is kept out of it."""

    table: str
    rows: pa.Table
    kept_out: dict[int, Why]
    """By the place of the change in its file's group."""
    lineages: tuple[str, ...] = ()
    withheld: tuple[BlockedSchemaChange, ...] = ()
    columns: tuple[str, ...] = ()
    """Of the row, as the file has them."""
    expectations: tuple[ExpectationResult, ...] = ()


def admit_changes(plan: ChangePlan, changes: Changes, file: str = "") -> Iterator[Admitted]:
    """One part for each lineage that the changes are of, which is one as a rule."""
    table = plan.log_for(changes.source)
    everything = np.arange(len(changes.positions))
    if (why := _no_table(plan, table, changes)) is not None:
        columns, reason = why
        kept_out = dict.fromkeys(everything.tolist(), reason)
        yield Admitted(table, pa.table({}), kept_out, withheld=columns)
        return
    for found, rows in _by_lineage(plan, table, changes.metadata):
        yield _admitted(plan, table, changes, rows, found, file)


def _no_table(
    plan: ChangePlan, table: str, changes: Changes
) -> tuple[tuple[BlockedSchemaChange, ...], Why] | None:
    """Why there is no table for the changes, and may be none."""
    if table in plan.known_tables:
        return None
    rules = plan.contract.for_table(table)
    if rules.tables is not Mode.EVOLVE:
        change = with_outcome(CreateTable(table, changes.payload.num_columns), rules)
        held = BlockedSchemaChange(table, (), change.as_record(), len(changes.positions))
        return (held,), (Reason.CONTRACT_TABLES, f"for table {table}")
    if not plan.may_write(table, set()):
        return (), (Reason.TOO_MANY_TABLES, f"for table {table}")
    return None


def _by_lineage(
    plan: ChangePlan, table: str, metadata: pa.RecordBatch
) -> Iterator[tuple[tuple[str, ...], np.ndarray]]:
    """The rows of each lineage, with those that took over before and after it."""
    everything = np.arange(len(metadata))
    if (settled := plan.settled_lineages(table)) is not None:
        yield settled, everything
        return
    told = lineages(metadata).dictionary_encode()
    known = plan.lineages_of(table, told.dictionary.to_pylist())
    if known or not len(told.dictionary):
        yield known, everything
        return
    codes = told.indices.fill_null(0).to_numpy()
    for code, lineage in enumerate(told.dictionary.to_pylist()):
        yield (lineage,), np.flatnonzero(codes == code)


def _admitted(
    plan: ChangePlan,
    table: str,
    changes: Changes,
    rows: np.ndarray,
    known: tuple[str, ...],
    file: str,
) -> Admitted:
    metadata, payload = _rows_at(changes.metadata, rows), _rows_at(changes.payload, rows)
    orders = order(metadata, known)
    kept_out: dict[int, Why] = {
        row: (Reason.ORDER_UNKNOWN, why) for row, why in orders.unknown.items()
    }
    for row in _too_late(plan, table, metadata):
        kept_out.setdefault(row, (Reason.TOO_LATE, "by the source's clock"))
    for row in _without_key(plan, changes, metadata, payload):
        kept_out.setdefault(row, (Reason.KEY_MISSING, "a column of the key is null or absent"))
    expected = Expectations.of(plan.expect, table, *plan.merged_names(changes.source))
    if expected is not None:
        there = _that_are_rows(metadata, kept_out)
        failing = expected.check(
            lambda row: f"record {changes.positions[rows[there[row]]]} of {file}",
            payload.take(pa.array(there)),
            metadata.take(pa.array(there)),
        )
        expected.stop_if_broken()
        for row, detail in failing.items():
            kept_out[int(there[row])] = (Reason.EXPECTATION, detail)
    withheld: tuple[BlockedSchemaChange, ...] = ()
    staying = np.delete(np.arange(len(rows)), list(kept_out))
    columns = _rows_at(payload, staying)
    shape, rules = plan.shape(table), plan.contract.for_table(table)
    if shape is None and rules.strict:
        shape = payload.schema
    if shape is not None:
        fitted = fit(payload.schema, shape, rules)
        result = apply_contract(columns, fitted)
        for row, change in result.rejected_rows.items():
            kept_out[int(staying[row])] = (reason_of(change), str(change))
        withheld = tuple(
            BlockedSchemaChange(table, (), change.as_record(), count)
            for change, count in result.blocked
        )
        staying = np.delete(staying, list(result.rejected_rows))
        columns = result.columns
    told = _rows_at(metadata, staying)
    fields, arrays = [pa.field("_order", pa.string())], [_rows_at(orders.texts, staying)]
    for batch in (told, columns):
        for field in batch.schema:
            column = batch[field.name]
            # A column of nothing but nulls costs a file as much as a full one, and says less.
            if field.name in payload.schema.names or column.null_count < len(column):
                fields.append(field)
                arrays.append(column)
    placed = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
    outside = {int(rows[row]): why for row, why in kept_out.items()}
    counts = expected.results if expected is not None else ()
    return Admitted(table, placed, outside, known, withheld, tuple(payload.schema.names), counts)


def _that_are_rows(metadata: pa.RecordBatch, kept_out: Collection[int]) -> np.ndarray:
    """Changes that leave a row behind: of what a deletion takes away, nothing is expected."""
    there = ~metadata["_is_deleted"].fill_null(False).to_numpy(zero_copy_only=False)
    there[list(kept_out)] = False
    return np.flatnonzero(there)


def _rows_at(values: pa.RecordBatch | pa.Array, rows: np.ndarray) -> pa.RecordBatch | pa.Array:
    """As a rule these are all rows: then nothing is copied."""
    return values if len(rows) == len(values) else values.take(pa.array(rows))


def _too_late(plan: ChangePlan, table: str, metadata: pa.RecordBatch) -> list[int]:
    known = plan.known.get(table)
    if known is None or known.newest is None or not plan.horizon_seconds:
        return []
    earliest = known.newest - timedelta(seconds=plan.horizon_seconds)
    late = pc.less(metadata["_source_timestamp"], pa.scalar(earliest, pa.timestamp("us", "UTC")))
    return list(np.flatnonzero(late.fill_null(False).to_numpy(zero_copy_only=False)))


def _without_key(
    plan: ChangePlan, changes: Changes, metadata: pa.RecordBatch, payload: pa.RecordBatch
) -> list[int]:
    """Changes of a table with a key that have none, and do not name their row by its row id."""
    declared = plan.envelope.key_of(pattern_name(changes.source))
    named = [tuple(declared or one or ()) for one in metadata["_primary_keys"].to_pylist()]
    keys = set(named)
    missing = np.zeros(len(metadata), bool)
    for names in keys:
        if names:
            mine = len(keys) == 1 or np.array([one == names for one in named], bool)
            missing |= mine & ~_has_values(payload, names)
    by_row_id = pc.and_(metadata[ROW_ID].is_valid(), metadata["_is_deleted"].fill_null(False))
    return list(np.flatnonzero(missing & ~by_row_id.to_numpy(zero_copy_only=False)))


def _has_values(payload: pa.RecordBatch, names: tuple[str, ...]) -> np.ndarray:
    columns = key_columns(names, payload.schema)
    there = np.full(len(payload), bool(columns))
    for column in columns:
        there &= payload[column].is_valid().to_numpy(zero_copy_only=False)
    return there
