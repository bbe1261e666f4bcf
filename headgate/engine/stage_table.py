"""Stages the records of one table: decode, check expectations, apply the contract, write."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from headgate.config import UnknownFields
from headgate.engine.expectations import Expectations, drop_rows
from headgate.engine.plan import BatchPlan
from headgate.envelopes.opened import Group, Rejected, payloads_of
from headgate.formats.cells import MAX_CELLS, cells_of, parts_of
from headgate.formats.decoder import Decoded, Decoder, Refusal, only_length
from headgate.formats.decoders import Decoders
from headgate.formats.protobuf import ProtobufDecoder
from headgate.lake.parquet import write_parquet
from headgate.lake.staged import BlockedSchemaChange, ExpectationResult, StagedFile, encode_schema
from headgate.reasons import Reason
from headgate.registry.registry import SchemaKey
from headgate.schema.changes import CreateTable, Outcome, SchemaChange
from headgate.schema.conform import conform, rows_with_value
from headgate.schema.fit import Fit, fit, with_outcome
from headgate.schema.origin import UNKNOWN_FIELDS


@dataclass(frozen=True)
class ContractResult:
    """Rows that conform to the contract, in the table's columns, and what it blocked."""

    columns: pa.RecordBatch
    rejected_rows: dict[int, SchemaChange]
    """Rows that go to the quarantine, each with the change that the contract does not allow."""
    blocked: tuple[tuple[SchemaChange, int], ...]
    """Changes that the contract blocks, and the number of rows that carry such a value."""


def apply_contract(columns: pa.RecordBatch, fitted: Fit) -> ContractResult:
    """Reject the rows of blocked changes: those with such a value, or all of a refused schema.

    Where the contract discards only the value, the row is kept without it.
    """
    rejected: dict[int, SchemaChange] = {}
    carriers = [(change, _rows_with(columns, change)) for change in fitted.blocked]
    for change, rows in carriers:
        if change.outcome is not Outcome.DISCARDED:
            for row in np.flatnonzero(rows):
                rejected.setdefault(int(row), change)
    conforming = _map_columns(columns, fitted)
    if rejected:
        conforming = conforming.take(pa.array(np.delete(np.arange(len(columns)), list(rejected))))
    blocked = tuple((change, int(rows.sum())) for change, rows in carriers)
    return ContractResult(conforming, rejected, blocked)


def _rows_with(columns: pa.RecordBatch, change: SchemaChange) -> np.ndarray:
    if change.outcome is Outcome.REFUSED:
        return np.ones(len(columns), bool)
    column, *path = change.column.split(".")
    return rows_with_value(columns.column(column), path)


def _map_columns(columns: pa.RecordBatch, fitted: Fit) -> pa.RecordBatch:
    if fitted.is_identity and len(fitted.mappings) == columns.num_columns:
        return columns
    if not fitted.mappings:
        return only_length(len(columns))
    arrays = [columns.column(one.source) for one in fitted.mappings]
    conformed = [
        array if one.type is None else conform(array, one.type)
        for array, one in zip(arrays, fitted.mappings, strict=True)
    ]
    return pa.RecordBatch.from_arrays(conformed, [one.target for one in fitted.mappings])


_SMALL_GROUP_ROWS = 20_000
"""Groups of at least this many records are decoded by a call of their own."""

GroupToDecode = tuple[Group, ProtobufDecoder]

DecodedGroups = Mapping[Group, Decoded]


def decode_small_groups(groups: Iterable[Group], decoders: Decoders) -> DecodedGroups:
    """Decode small groups together where their schemas differ only in the names of columns.

    A call of the decoder has a fixed cost, and a batch may have thousands of groups. Groups with a
    payload that is not read exactly are left out, to be decoded one by one.
    """
    found: dict[Group, Decoded] = {}
    cells = 0
    for similar in _group_by_structure(groups, decoders):
        if len(similar) == 1 or cells > MAX_CELLS:
            continue
        payloads, decoder = payloads_of([group for group, _ in similar]), similar[0][1]
        if len(parts_of(decoder, payloads)) > 1:
            continue
        arrays = decoder.decode_exact(payloads)
        if arrays is None:
            continue
        cells += cells_of(arrays)
        start = 0
        for group, decoder in similar:
            mine = [array.slice(start, len(group.rows)) for array in arrays]
            columns = pa.RecordBatch.from_arrays(mine, schema=decoder.schema)
            found[group] = Decoded(columns, {})
            start += len(group.rows)
    return found


def _group_by_structure(groups: Iterable[Group], decoders: Decoders) -> list[list[GroupToDecode]]:
    found: list[list[GroupToDecode]] = []
    for group in groups:
        decoder = decoders.decoder(*group.message)
        if not isinstance(decoder, ProtobufDecoder) or len(group.rows) >= _SMALL_GROUP_ROWS:
            continue
        similar = next((one for one in found if one[0][1].is_like(decoder)), None)
        if similar is None:
            found.append([(group, decoder)])
        else:
            similar.append((group, decoder))
    return found


@dataclass(frozen=True)
class Origins:
    """The origin of some records: their rows in the portion, and their metadata columns."""

    rows: np.ndarray
    columns: pa.RecordBatch

    def place(self, position: int) -> str:
        """Return the origin of a record as `topic:partition:offset`, as far as it is known."""
        row = {name: self.columns[name][position].as_py() for name in self.columns.schema.names}
        known = (row.get(name) for name in ("_topic", "_partition", "_offset"))
        return ":".join(str(each) for each in known if each is not None) or "one of them"

    def with_unknown_fields(self, kept: Mapping[int, bytes]) -> Origins:
        """Add a column with the bytes of fields that the records' schemas do not have."""
        if not kept:
            return self
        values = pa.array([kept.get(at) for at in range(len(self.rows))], UNKNOWN_FIELDS.type)
        return Origins(self.rows, self.columns.append_column(UNKNOWN_FIELDS, values))

    def without(self, bad: Collection[int]) -> Origins:
        if not bad:
            return self
        kept = np.delete(np.arange(len(self.rows)), list(bad))
        return Origins(self.rows[kept], self.columns.take(pa.array(kept)))

    def part(self, part: slice) -> Origins:
        return Origins(self.rows[part], self.columns[part])


class PortionOrigins:
    """The origins of all records of a portion, copied for some of its groups at a time."""

    def __init__(self, records: pa.Table, opened: np.ndarray | None) -> None:
        self._opened = opened
        self._columns = {
            # In one chunk, because rows are taken from it in any order.
            name: records.column(name).combine_chunks()
            for name in records.column_names
            # In a file, a column of nulls costs as much as any other.
            if name != "value" and records.column(name).null_count < len(records)
        }
        self._constant = {
            name
            for name, column in self._columns.items()
            if pa.types.is_string(column.type) and len(column.unique()) == 1
        }

    def of(self, groups: Sequence[Group]) -> list[Origins]:
        """Return the origins of each group, as views of one copy: there may be many groups."""
        rows = np.concatenate([group.rows for group in groups])
        if self._opened is not None:
            rows = self._opened[rows]
        at = pa.array(rows)
        columns = [self._values_at(name, at) for name in self._columns]
        names = [f"_{name}" for name in self._columns]
        batch = pa.record_batch([*columns, _schema_ids(groups)], [*names, "_schema_id"])
        origins, start = [], 0
        for group in groups:
            end = start + len(group.rows)
            origins.append(Origins(rows[start:end], batch.slice(start, end - start)))
            start = end
        return origins

    def _values_at(self, name: str, rows: pa.Array) -> pa.Array:
        """Return values at some rows. Constant columns, such as the topic, need no lookup."""
        column = self._columns[name]
        return column.slice(0, len(rows)) if name in self._constant else column.take(rows)


def _schema_ids(groups: Sequence[Group]) -> pa.Array:
    """Return the schema id of each record, or null for schemas with other keys."""
    keys = [group.message[0] for group in groups]
    ids = pa.array([key if isinstance(key, int) else None for key in keys], pa.int64())
    return ids.take(pa.array(np.repeat(np.arange(len(groups)), [len(one.rows) for one in groups])))


@dataclass(frozen=True)
class DecodedPart:
    """Columns of one schema, and the origins of their records."""

    columns: pa.RecordBatch
    origin: Origins
    key: SchemaKey

    @property
    def schema_id(self) -> int | None:
        return self.key if isinstance(self.key, int) else None


def join_parts(parts: Sequence[DecodedPart]) -> list[tuple[pa.Table, tuple[int, ...]]]:
    """Return the rows and schema ids of each file; types that conflict need several files."""
    if not parts:
        return []
    tables = [_file_rows(part) for part in parts]
    try:
        rows = pa.concat_tables(tables, promote_options="default")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return [one for part in parts for one in join_parts([part])]
    known = {part.schema_id for part in parts if part.schema_id is not None}
    return [(rows, tuple(sorted(known)))]


def _file_rows(part: DecodedPart) -> pa.Table:
    """Return columns in an order in which those of other schemas can follow."""
    origin, columns = part.origin.columns, part.columns
    return pa.Table.from_arrays(
        [*origin.columns, *columns.columns], [*origin.schema.names, *columns.schema.names]
    )


GroupWithOrigins = tuple[Group, Origins]
"""Records of one route and schema, and their origins."""


def stage_table(
    plan: BatchPlan,
    table: str,
    groups: Sequence[GroupWithOrigins],
    decoders: Decoders,
    decoded_groups: DecodedGroups,
    rejected: list[Rejected],
    blocked: list[BlockedSchemaChange],
    expectations: list[ExpectationResult],
) -> Iterator[StagedFile]:
    """Write one file for all schemas of a table.

    They are several if the types of columns conflict, or if records have too many cells in memory.
    Rejected records are appended to `rejected`. Blocked changes and results of expectations are
    part of one of the files; without any, they are appended to `blocked` and `expectations`.
    """
    rules = plan.contract.for_table(table)
    shape = plan.shape(table)
    expected = Expectations.of(plan.expect, table)
    route = groups[0][0].route
    parts: list[DecodedPart] = []
    new_schemas: dict[str, str] = {}
    blocked_here: list[BlockedSchemaChange] = []
    unknown = cells = 0

    def files() -> Iterator[StagedFile]:
        for number, (rows, ids) in enumerate(join_parts(parts)):
            new = {key: schema for key, schema in new_schemas.items() if int(key) in ids}
            name = plan.new_file()
            file = write_parquet(plan.lake, table, name, rows, route=route, schema_ids=ids)
            yield replace(file, new_schemas=new or None, unknown_fields=0 if number else unknown)

    for group, origin, decoded in _decode_in_parts(groups, decoders, decoded_groups):
        if cells > MAX_CELLS:
            yield from files()
            parts, unknown, cells = [], 0, 0
        decoder, key = _decoder(decoders, group), group.message[0]
        refused: dict[int, str] = {}
        if decoded.unknown and isinstance(decoder, ProtobufDecoder):
            refused, kept = _unknown_fields(decoder, group, decoded, rules.unknown_fields)
            origin = origin.with_unknown_fields(kept)
            unknown += len(decoded.unknown) - len(refused)
        wrong = {Reason.PAYLOAD_UNDECODABLE: decoded.bad, Reason.UNKNOWN_FIELDS: refused}
        for why, details in wrong.items():
            for position, detail in details.items():
                row = int(origin.rows[position])
                rejected.append(Rejected(row, why, detail, group.route, key))
        landing = origin.without([*decoded.bad, *refused])
        columns = drop_rows(decoded.columns, _shift_positions(refused, decoded.bad))
        if expected is not None and len(columns):
            failing = expected.check(landing.place, columns, landing.columns)
            for position, detail in failing.items():
                row = int(landing.rows[position])
                rejected.append(Rejected(row, Reason.EXPECTATION, detail, group.route, key))
            landing, columns = landing.without(failing), drop_rows(columns, failing)
        if shape is None and rules.strict:
            shape = decoder.schema
        if shape is not None:
            result = apply_contract(columns, fit(decoder.schema, shape, rules))
            for position, change in result.rejected_rows.items():
                reason, row = reason_of(change), int(landing.rows[position])
                rejected.append(Rejected(row, reason, str(change), group.route, key))
            blocked_here += [_blocked(table, key, change, rows) for change, rows in result.blocked]
            landing, columns = landing.without(result.rejected_rows), result.columns
        if len(landing.rows):
            parts.append(DecodedPart(columns, landing, key))
            cells += cells_of(columns.columns)
            if isinstance(key, int) and key not in plan.seen_schema_ids.get(table, ()):
                new_schemas[str(key)] = encode_schema(decoder.schema)
    results: tuple[ExpectationResult, ...] = ()
    if expected is not None:
        expected.stop_if_broken()
        results = expected.results
    for number, file in enumerate(files()):
        first = not number
        yield replace(
            file,
            blocked=tuple(blocked_here) if first else (),
            expectations=results if first else (),
        )
    if not parts:
        blocked += blocked_here
        expectations += results


def _decode_in_parts(
    groups: Sequence[GroupWithOrigins], decoders: Decoders, decoded_groups: DecodedGroups
) -> Iterator[tuple[Group, Origins, Decoded]]:
    """Decode groups from old schemas to new ones, those with too many cells in several parts."""
    for group, origin in sorted(groups, key=_age):
        decoded = decoded_groups.get(group)
        if decoded is not None:
            yield group, origin, decoded
            continue
        decoder, payloads = _decoder(decoders, group), group.payloads
        parts = parts_of(decoder, payloads)
        if len(parts) == 1:
            yield group, origin, decoder.decode(payloads)
            continue
        for part in parts:
            yield group.part(part), origin.part(part), decoder.decode(payloads[part])


def _unknown_fields(
    decoder: ProtobufDecoder, group: Group, decoded: Decoded, mode: UnknownFields
) -> tuple[dict[int, str], dict[int, bytes]]:
    """Return the records to reject with the reason, and the bytes to keep of others, by position.

    Extensions are legitimate, although the schema has no columns for them.
    """
    refused: dict[int, str] = {}
    kept: dict[int, bytes] = {}
    if mode is UnknownFields.IGNORE:
        return refused, kept
    payloads = group.payloads
    for position in decoded.unknown:
        found = decoder.unknown_fields(payloads[position].as_py())
        if mode is UnknownFields.QUARANTINE and not found.only_extensions:
            refused[position] = found.detail
        else:
            kept[position] = found.data
    return refused, kept


def _shift_positions(positions: Mapping[int, str], removed: Iterable[int]) -> dict[int, str]:
    """Return the positions after other rows are removed."""
    if not positions:
        return {}
    before = np.sort(np.fromiter(removed, np.int64))
    return {at - int(np.searchsorted(before, at)): detail for at, detail in positions.items()}


def reject_new_table(
    plan: BatchPlan,
    table: str,
    groups: Sequence[GroupWithOrigins],
    decoders: Decoders,
    blocked: list[BlockedSchemaChange],
) -> list[Rejected]:
    """Reject all records of a route whose table the contract does not allow to be created."""
    rules = plan.contract.for_table(table)
    rejected: list[Rejected] = []
    for group, origin in groups:
        columns = len(_decoder(decoders, group).schema)
        change = with_outcome(CreateTable(table, columns), rules)
        blocked.append(_blocked(table, group.message[0], change, len(origin.rows)))
        rejected += reject(group, origin, Reason.CONTRACT_TABLES, f"for table {table}")
    return rejected


def reject(group: Group, origin: Origins, reason: Reason, detail: str) -> list[Rejected]:
    key = group.message[0]
    return [Rejected(int(row), reason, detail, group.route, key) for row in origin.rows]


def _decoder(decoders: Decoders, group: Group) -> Decoder:
    decoder = decoders.decoder(*group.message)
    assert not isinstance(decoder, Refusal)
    return decoder


def _age(one: GroupWithOrigins) -> tuple[bool, int, str]:
    """Order schemas from old to new: registries assign increasing ids."""
    key = one[0].message[0]
    return (False, key, "") if isinstance(key, int) else (True, 0, key)


def reason_of(change: SchemaChange) -> Reason:
    return Reason.CONTRACT_TYPES if change.decided_by == "types" else Reason.CONTRACT_COLUMNS


def _blocked(table: str, key: SchemaKey, change: SchemaChange, rows: int) -> BlockedSchemaChange:
    return BlockedSchemaChange(
        table, (key,) if isinstance(key, int) else (), change.as_record(), rows
    )
