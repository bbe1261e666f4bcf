"""Accept changes into their log or reject them, and put them in the log's columns and order."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.cdc.chunk import POSITION
from headgate.cdc.key import ROW_ID, key_columns
from headgate.cdc.order.orders import lineages, order
from headgate.cdc.plan import ChangePlan
from headgate.cdc.source_tables import microseconds
from headgate.config import Mode
from headgate.engine.expectations import Expectations
from headgate.engine.stage_table import apply_contract, reason_of
from headgate.envelopes.datastream.changes import Changes
from headgate.lake.names import pattern_name
from headgate.lake.staged import BlockedSchemaChange, ExpectationResult
from headgate.reasons import Reason
from headgate.schema.changes import CreateTable
from headgate.schema.fit import fit, with_outcome

Rejection = tuple[Reason, str]


@dataclass(frozen=True)
class AcceptedChanges:
    """Rows for a change log, and the changes that were rejected."""

    table: str
    rows: pa.Table
    """With the positions of the changes in their file."""
    rejected: dict[int, Rejection]
    """By the index of the change in its group."""
    lineages: tuple[str, ...] = ()
    blocked: tuple[BlockedSchemaChange, ...] = ()
    columns: tuple[str, ...] = ()
    """Columns of the source table in the file."""
    expectations: tuple[ExpectationResult, ...] = ()


def accept_changes(plan: ChangePlan, changes: Changes, file: str = "") -> Iterator[AcceptedChanges]:
    """Yield a part for each lineage of the changes; usually they have one."""
    table = plan.log_for(changes.source)
    everything = np.arange(len(changes.positions))
    if (blocked := _blocked_table(plan, table, changes)) is not None:
        changes_blocked, rejection = blocked
        rejected = dict.fromkeys(everything.tolist(), rejection)
        yield AcceptedChanges(table, pa.table({}), rejected, blocked=changes_blocked)
        return
    for known, rows in _by_lineage(plan, table, changes.metadata):
        yield _accept(plan, table, changes, rows, known, file)


def _blocked_table(
    plan: ChangePlan, table: str, changes: Changes
) -> tuple[tuple[BlockedSchemaChange, ...], Rejection] | None:
    """Return why the log must not be created; None if it exists or may be."""
    if table in plan.known_tables:
        return None
    rules = plan.contract.for_table(table)
    if rules.tables is not Mode.EVOLVE:
        change = with_outcome(CreateTable(table, changes.payload.num_columns), rules)
        blocked = BlockedSchemaChange(table, (), change.as_record(), len(changes.positions))
        return (blocked,), (Reason.CONTRACT_TABLES, f"for table {table}")
    if not plan.may_write(table, set()):
        return (), (Reason.TOO_MANY_TABLES, f"for table {table}")
    return None


def _by_lineage(
    plan: ChangePlan, table: str, metadata: pa.RecordBatch
) -> Iterator[tuple[tuple[str, ...], np.ndarray]]:
    """Yield the rows of each lineage with all lineages that order them."""
    everything = np.arange(len(metadata))
    if (fixed := plan.fixed_lineages(table)) is not None:
        yield fixed, everything
        return
    encoded = lineages(metadata).dictionary_encode()
    known = plan.lineages_of(table, encoded.dictionary.to_pylist())
    if known or not len(encoded.dictionary):
        yield known, everything
        return
    codes = encoded.indices.fill_null(0).to_numpy()
    for code, lineage in enumerate(encoded.dictionary.to_pylist()):
        yield (lineage,), np.flatnonzero(codes == code)


def _accept(
    plan: ChangePlan,
    table: str,
    changes: Changes,
    rows: np.ndarray,
    known: tuple[str, ...],
    file: str,
) -> AcceptedChanges:
    metadata, payload = _take(changes.metadata, rows), _take(changes.payload, rows)
    orders = order(metadata, known)
    rejected: dict[int, Rejection] = {
        row: (Reason.ORDER_UNKNOWN, detail) for row, detail in orders.unknown.items()
    }
    for row in _late_rows(plan, table, metadata):
        rejected.setdefault(row, (Reason.TOO_LATE, "by the source's clock"))
    for row in _rows_without_key(plan, changes, metadata, payload):
        rejected.setdefault(row, (Reason.KEY_MISSING, "a column of the key is null or absent"))
    for row in np.flatnonzero(np.isin(changes.positions[rows], plan.reused.get(file, ()))).tolist():
        rejected.setdefault(row, (Reason.UUID_REUSED, f"the id is {metadata['_uuid'][row]}"))
    expected = Expectations.of(plan.expect, table, *plan.merged_names(changes.source))
    if expected is not None:
        checked = _rows_to_check(metadata, rejected)
        failing = expected.check(
            lambda row: f"record {changes.positions[rows[checked[row]]]} of {file}",
            payload.take(pa.array(checked)),
            metadata.take(pa.array(checked)),
        )
        expected.stop_if_broken()
        for row, detail in failing.items():
            rejected[int(checked[row])] = (Reason.EXPECTATION, detail)
    blocked: tuple[BlockedSchemaChange, ...] = ()
    remaining = np.delete(np.arange(len(rows)), list(rejected))
    columns = _take(payload, remaining)
    shape, rules = plan.shape(table), plan.contract.for_table(table)
    if shape is None and rules.strict:
        shape = payload.schema
    if shape is not None:
        fitted = fit(payload.schema, shape, rules)
        result = apply_contract(columns, fitted)
        for row, change in result.rejected_rows.items():
            rejected[int(remaining[row])] = (reason_of(change), str(change))
        blocked = tuple(
            BlockedSchemaChange(table, (), change.as_record(), count)
            for change, count in result.blocked
        )
        remaining = np.delete(remaining, list(result.rejected_rows))
        columns = result.columns
    fields = [pa.field("_order", pa.string()), pa.field(POSITION, pa.int64())]
    positions = pa.array(changes.positions[rows[remaining]], pa.int64())
    arrays = [_take(orders.texts, remaining), positions]
    for batch in (_take(metadata, remaining), columns):
        for field in batch.schema:
            column = batch[field.name]
            # A metadata column of nulls costs a file as much as a full one.
            if field.name in payload.schema.names or column.null_count < len(column):
                fields.append(field)
                arrays.append(column)
    return AcceptedChanges(
        table,
        pa.Table.from_arrays(arrays, schema=pa.schema(fields)),
        {int(rows[row]): rejection for row, rejection in rejected.items()},
        known,
        blocked,
        tuple(payload.schema.names),
        expected.results if expected is not None else (),
    )


def _rows_to_check(metadata: pa.RecordBatch, rejected: Collection[int]) -> np.ndarray:
    """Return the changes that expectations apply to: those that leave a row behind."""
    checked = ~metadata["_is_deleted"].fill_null(False).to_numpy(zero_copy_only=False)
    checked[list(rejected)] = False
    return np.flatnonzero(checked)


def _take(values: pa.RecordBatch | pa.Array, rows: np.ndarray) -> pa.RecordBatch | pa.Array:
    """Return some of the rows, without a copy if they are all."""
    return values if len(rows) == len(values) else values.take(pa.array(rows))


def _late_rows(plan: ChangePlan, table: str, metadata: pa.RecordBatch) -> list[int]:
    """Return the changes that are older than the horizon."""
    source = plan.known.get(table)
    if source is None or source.newest is None or not plan.horizon_seconds:
        return []
    earliest = microseconds(source.newest) - int(plan.horizon_seconds * 1_000_000)
    late = pc.less(metadata["_source_timestamp"].cast(pa.int64()), earliest)
    return list(np.flatnonzero(late.fill_null(False).to_numpy(zero_copy_only=False)))


def _rows_without_key(
    plan: ChangePlan, changes: Changes, metadata: pa.RecordBatch, payload: pa.RecordBatch
) -> list[int]:
    """Return the changes that lack a value of their key, except deletions by row ID."""
    declared = plan.envelope.key_of(pattern_name(changes.source))
    missing = np.zeros(len(metadata), bool)
    if declared:
        missing = ~_has_values(payload, tuple(declared))
    else:
        for key, rows in _by_key(metadata["_primary_keys"]):
            missing[rows] = ~_has_values(_take(payload, rows), key)
    by_row_id = pc.and_(metadata[ROW_ID].is_valid(), metadata["_is_deleted"].fill_null(False))
    return list(np.flatnonzero(missing & ~by_row_id.to_numpy(zero_copy_only=False)))


def _by_key(keys: pa.ListArray) -> Iterator[tuple[tuple[str, ...], np.ndarray]]:
    """Yield each key that changes name, and which ones name it."""
    lengths = keys.value_lengths().fill_null(0).to_numpy()
    starts = np.cumsum(lengths) - lengths
    names = keys.flatten().dictionary_encode()
    codes = names.indices.to_numpy()
    for length in np.unique(lengths[lengths > 0]):
        rows = np.flatnonzero(lengths == length)
        named = codes[starts[rows, None] + np.arange(length)]
        if (named == named[0]).all():
            distinct, together = named[:1], [rows]
        else:
            distinct, numbers, counts = np.unique(
                named, axis=0, return_inverse=True, return_counts=True
            )
            in_order = rows[np.argsort(numbers.reshape(-1), kind="stable")]
            together = np.split(in_order, np.cumsum(counts)[:-1])
        for key, same in zip(distinct, together, strict=True):
            yield tuple(names.dictionary.take(pa.array(key)).to_pylist()), same


def _has_values(payload: pa.RecordBatch, names: tuple[str, ...]) -> np.ndarray:
    columns = key_columns(names, payload.schema)
    valid = np.full(len(payload), bool(columns))
    for column in columns:
        valid &= payload[column].is_valid().to_numpy(zero_copy_only=False)
    return valid
