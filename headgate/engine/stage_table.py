"""The records of one table in a portion: decoded, checked, admitted by the contract, written."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from headgate.config import UnknownFields
from headgate.engine.expectations import Expectations, without
from headgate.engine.record_plan import StagingPlan
from headgate.envelopes.opened import Group, Rejected
from headgate.formats.decoder import Decoded, Decoder, Refusal, only_length
from headgate.formats.decoders import Decoders
from headgate.formats.protobuf import ProtobufDecoder
from headgate.lake.parquet import write_parquet
from headgate.lake.staged import Checked, StagedFile, Withheld, written
from headgate.reasons import Reason
from headgate.registry.registry import SchemaKey
from headgate.schema.changes import CreateTable, Outcome, SchemaChange
from headgate.schema.conform import conform, rows_with_value
from headgate.schema.fit import Fit, fit, with_outcome
from headgate.schema.origin import UNKNOWN_FIELDS


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
    carrying = [(change, _carrying(columns, change)) for change in fitted.blocked]
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
    return rows_with_value(columns.column(column), path)


def _placed(columns: pa.RecordBatch, fitted: Fit) -> pa.RecordBatch:
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


_FEW = 20_000
"""A group of so many records is worth a call of its own."""

GroupToDecode = tuple[Group, ProtobufDecoder]

DecodedAhead = Mapping[Group, Decoded]


def decode_ahead(groups: Iterable[Group], decoders: Decoders) -> DecodedAhead:
    """Those whose schemas differ in the names of columns alone, as those of many tables do.

    Groups of which any payload needs a closer look are left out: they are decoded one by one.
    """
    found: dict[Group, Decoded] = {}
    for several in _alike(groups, decoders):
        payloads = pa.concat_arrays([piece for group, _ in several for piece in group.pieces])
        arrays = several[0][1].decode_exact(payloads) if len(several) > 1 else None
        if arrays is None:
            continue
        start = 0
        for group, decoder in several:
            mine = [array.slice(start, len(group.rows)) for array in arrays]
            columns = pa.RecordBatch.from_arrays(mine, schema=decoder.schema)
            found[group] = Decoded(columns, {})
            start += len(group.rows)
    return found


def _alike(groups: Iterable[Group], decoders: Decoders) -> list[list[GroupToDecode]]:
    alike: list[list[GroupToDecode]] = []
    for group in groups:
        decoder = decoders.decoder(*group.message)
        if not isinstance(decoder, ProtobufDecoder) or len(group.rows) >= _FEW:
            continue
        mine = next((one for one in alike if one[0][1].is_like(decoder)), None)
        if mine is None:
            alike.append([(group, decoder)])
        else:
            mine.append((group, decoder))
    return alike


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

    def with_unknown_fields(self, kept: Mapping[int, bytes]) -> Origins:
        """Add the column of bytes that the schemas of these records do not know."""
        if not kept:
            return self
        values = pa.array([kept.get(at) for at in range(len(self.rows))], UNKNOWN_FIELDS.type)
        return Origins(self.rows, self.columns.append_column(UNKNOWN_FIELDS, values))

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
    origin = pa.concat_tables(
        [pa.Table.from_batches([part.origin.columns]) for part in parts], promote_options="default"
    )
    ids = pa.chunked_array(
        [pa.repeat(pa.scalar(part.schema_id, pa.int64()), len(part.origin.rows)) for part in parts]
    )
    rows = pa.table(
        [*messages.columns, *origin.columns, ids],
        names=[*messages.column_names, *origin.column_names, "_schema_id"],
    )
    known = {part.schema_id for part in parts if part.schema_id is not None}
    return [(rows, tuple(sorted(known)))]


GroupOf = tuple[Group, Origins]
"""Records of one schema, and where they came from."""


def stage_table(
    plan: StagingPlan,
    table: str,
    groups: Sequence[GroupOf],
    decoders: Decoders,
    ahead: DecodedAhead,
    rejected: list[Rejected],
    withheld: list[Withheld],
    checked: list[Checked],
) -> Iterator[StagedFile]:
    """One file for all schemas of a table, as long as they agree about types."""
    rules = plan.contract.for_table(table)
    shape = plan.shape(table)
    expected = Expectations.of(plan.expect, table)
    parts: list[Part] = []
    new_schemas: dict[str, str] = {}
    stayed_out: list[Withheld] = []
    unknown = 0
    for group, origin in sorted(groups, key=_age):
        decoder, key = _decoder(decoders, group), group.message[0]
        decoded = ahead.get(group) or decoder.decode(group.payloads)
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
        columns = without(decoded.columns, _moved_up(refused, decoded.bad))
        if expected is not None and len(columns):
            failing = expected.check(landing.place, columns, landing.columns)
            for position, detail in failing.items():
                row = int(landing.rows[position])
                rejected.append(Rejected(row, Reason.EXPECTATION, detail, group.route, key))
            landing, columns = landing.without(failing), without(columns, failing)
        if shape is None and rules.strict:
            shape = decoder.schema
        if shape is not None:
            admitted = admit(columns, fit(decoder.schema, shape, rules))
            for position, change in admitted.kept_out.items():
                reason, row = reason_of(change), int(landing.rows[position])
                rejected.append(Rejected(row, reason, str(change), group.route, key))
            stayed_out += [
                _withheld(table, key, change, rows) for change, rows in admitted.withheld
            ]
            landing, columns = landing.without(admitted.kept_out), admitted.columns
        if len(landing.rows):
            parts.append(Part(columns, landing, key))
            if isinstance(key, int) and key not in plan.met.get(table, ()):
                new_schemas[str(key)] = written(decoder.schema)
    counts: tuple[Checked, ...] = ()
    if expected is not None:
        expected.stop_if_broken()
        counts = expected.counts
    route, files = groups[0][0].route, joined(parts)
    for number, (rows, ids) in enumerate(files):
        new = {key: schema for key, schema in new_schemas.items() if int(key) in ids}
        file = write_parquet(plan.lake, table, plan.new_file(), rows, route=route, schema_ids=ids)
        yield replace(
            file,
            new_schemas=new or None,
            unknown_fields=0 if number else unknown,
            withheld=() if number else tuple(stayed_out),
            expectations=() if number else counts,
        )
    if not files:
        withheld += stayed_out
        checked += counts


def _unknown_fields(
    decoder: ProtobufDecoder, group: Group, decoded: Decoded, mode: UnknownFields
) -> tuple[dict[int, str], dict[int, bytes]]:
    """Return why some records cannot land, and the bytes that others land with, by position.

    Extensions are legitimate, though the schema has no columns for them.
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


def _moved_up(positions: Mapping[int, str], removed: Iterable[int]) -> dict[int, str]:
    """Where these positions are once others are removed."""
    before = np.sort(np.fromiter(removed, np.int64))
    return {at - int(np.searchsorted(before, at)): detail for at, detail in positions.items()}


def without_table(
    plan: StagingPlan,
    table: str,
    groups: Sequence[GroupOf],
    decoders: Decoders,
    withheld: list[Withheld],
) -> list[Rejected]:
    """All records of a route that may not have a table."""
    rules = plan.contract.for_table(table)
    rejected: list[Rejected] = []
    for group, origin in groups:
        columns = len(_decoder(decoders, group).schema)
        change = with_outcome(CreateTable(table, columns), rules)
        withheld.append(_withheld(table, group.message[0], change, len(origin.rows)))
        rejected += reject(group, origin, Reason.CONTRACT_TABLES, f"for table {table}")
    return rejected


def reject(group: Group, origin: Origins, reason: Reason, detail: str) -> list[Rejected]:
    key = group.message[0]
    return [Rejected(int(row), reason, detail, group.route, key) for row in origin.rows]


def _decoder(decoders: Decoders, group: Group) -> Decoder:
    decoder = decoders.decoder(*group.message)
    assert not isinstance(decoder, Refusal)
    return decoder


def _age(one: GroupOf) -> tuple[bool, int, str]:
    """Registries count their ids up."""
    key = one[0].message[0]
    return (False, key, "") if isinstance(key, int) else (True, 0, key)


def reason_of(change: SchemaChange) -> Reason:
    return Reason.CONTRACT_TYPES if change.decided_by == "types" else Reason.CONTRACT_COLUMNS


def _withheld(table: str, key: SchemaKey, change: SchemaChange, rows: int) -> Withheld:
    return Withheld(table, (key,) if isinstance(key, int) else (), change.as_record(), rows)
