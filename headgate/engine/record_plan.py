"""Staging of a stream's records: the plan of a batch, and the task that carries it out.

A task reads records, opens their envelopes, decodes and routes the payloads, and writes one Parquet
file per table. The driver gets one small row per file.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import compress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.config import Mode, PipelineConfig, Registry
from headgate.config.shards import Shard
from headgate.engine.expectations import rules_of
from headgate.engine.plan import BatchPlan, TableShape
from headgate.engine.quarantine_table import QUARANTINE, quarantine_rows
from headgate.engine.stage_table import (
    DecodedGroups,
    DecodedPart,
    GroupWithOrigins,
    Origins,
    PortionOrigins,
    decode_small_groups,
    join_parts,
    reject,
    reject_new_table,
    stage_table,
)
from headgate.engine.task_results import encode_error, encode_files
from headgate.envelopes.open import open_envelope
from headgate.envelopes.opened import (
    Envelope,
    Group,
    Rejected,
    pause_collection,
)
from headgate.errors import HeadgateError
from headgate.formats.cells import MAX_CELLS
from headgate.formats.decoder import Refusal
from headgate.formats.decoders import MAX_UNKNOWN, MAX_UNKNOWN_IN_REPLAY, Decoders
from headgate.lake.names import TableNames
from headgate.lake.parquet import write_parquet
from headgate.lake.staged import BlockedSchemaChange, ExpectationResult, StagedFile
from headgate.reasons import Reason
from headgate.registry.open import open_registry
from headgate.schema.origin import ORIGIN, as_records

_BRONZE = pa.schema([pa.field("route", pa.string()), pa.field("payload", pa.binary()), *ORIGIN])

_MAX_PORTION_BYTES = 512 << 20
_CHUNK_ROWS = 100_000
"""Records of a chunk of a portion; this many fit into a processor's caches."""
_MAX_SHARE_ROWS = 250_000
"""Records of several tables whose columns are in memory together."""
_MAX_FILE_ROWS = 1_000_000

_decoders: dict[str, Decoders] = {}
"""Decoders by registry, kept for the life of the worker process to request each schema once."""


@dataclass(frozen=True, kw_only=True)
class RecordPlan(BatchPlan):
    """How the records of a stream are opened, decoded and routed."""

    names: TableNames
    envelope: Envelope
    registry: Registry
    max_record_bytes: int
    shard: Shard | None = None
    """The only routes to land, if other streams land the others."""

    @classmethod
    def of(cls, pipeline: PipelineConfig, known_tables: frozenset[str] = frozenset()) -> RecordPlan:
        return cls(
            lake=pipeline.lake,
            names=TableNames.of(pipeline),
            envelope=open_envelope(pipeline.envelope),
            registry=pipeline.schema_registry,
            known_tables=known_tables,
            max_tables=pipeline.max_tables,
            max_record_bytes=int(pipeline.max_record_bytes),
            shard=pipeline.stream.shard,
            contract=pipeline.contract,
            expect=rules_of(pipeline.expect),
        )

    @property
    def own_tables(self) -> Mapping[str, TableShape]:
        own = {self.names.quarantine: TableShape(QUARANTINE)}
        if self.names.bronze:
            own[self.names.bronze] = TableShape(_BRONZE, ("route",))
        return own

    @property
    def first_columns(self) -> pa.Schema:
        return ORIGIN

    @property
    def quarantine(self) -> str:
        return self.names.quarantine

    @property
    def ledger(self) -> str:
        return self.names.ledger

    @property
    def bronze(self) -> str | None:
        return self.names.bronze

    def tables_in_lake(self) -> frozenset[str]:
        return frozenset(self.names.silver_in(self.lake))

    def names_of_route(self, route: str) -> Collection[str]:
        return (self.names.silver_for(route),)

    def forget(self) -> None:
        _decoders.pop(repr(self.registry), None)

    def stage(self, records: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        key = repr(self.registry)
        created: set[str] = set()
        try:
            decoders = _decoders.get(key)
            if decoders is None:
                decoders = _decoders[key] = Decoders(open_registry(self.registry))
            most = MAX_UNKNOWN_IN_REPLAY if self.from_quarantine else MAX_UNKNOWN
            decoders.begin((self.version, self.began), most)
            for portion in _portions(records):
                with pause_collection():
                    files = list(_stage_portion(self, portion, decoders, created))
                yield encode_files(files)
        except HeadgateError as error:
            yield encode_error(type(error).__name__, *error.parts)
        finally:
            # The worker process may be idle for long before its next task.
            pa.default_memory_pool().release_unused()


def _portions(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Split the records of a task into portions that fit into memory.

    They are as large as possible, because every portion has files of its own.
    """
    chunks: list[pa.Table] = []
    small: list[pa.RecordBatch] = []
    size = rows = 0
    for batch in batches:
        if size and size + batch.nbytes > _MAX_PORTION_BYTES:
            yield pa.concat_tables([*chunks, *_combined(small)])
            chunks, small, size, rows = [], [], 0, 0
        small.append(batch)
        size += batch.nbytes
        rows += len(batch)
        if rows >= _CHUNK_ROWS:
            chunks += _combined(small)
            small, rows = [], 0
    chunks += _combined(small)
    if chunks:
        yield pa.concat_tables(chunks)


def _combined(batches: list[pa.RecordBatch]) -> list[pa.Table]:
    return [as_records(pa.Table.from_batches(batches)).combine_chunks()] if batches else []


def _stage_portion(
    plan: RecordPlan, records: pa.Table, decoders: Decoders, created: set[str]
) -> Iterator[StagedFile]:
    to_open, rejected = _check_sizes(records, plan.max_record_bytes)
    opened = plan.envelope.open(_rows_at(records, to_open), decoders)
    rejected += opened.rejected if to_open is None else _moved(opened.rejected, to_open)
    own = opened.groups
    if plan.shard is not None:
        own = [group for group in own if plan.shard.has(group.route)]
        rejected = _of_shard(plan.shard, records, rejected)
    origins = PortionOrigins(records, to_open)
    blocked: list[BlockedSchemaChange] = []
    expectations: list[ExpectationResult] = []
    in_bronze: list[np.ndarray] = []
    for table, groups, decoded in _table_by_table(plan, own, origins, decoders):
        known = table in plan.known_tables or table in created
        decodable = [one for one in groups if _has_decoder(decoders, *one, rejected)]
        if decodable and not known and plan.contract.for_table(table).tables is not Mode.EVOLVE:
            rejected += reject_new_table(plan, table, decodable, decoders, blocked)
        elif decodable and plan.may_write(table, created):
            known = True
            created.update({table} - plan.known_tables)
            yield from stage_table(
                plan, table, decodable, decoders, decoded, rejected, blocked, expectations
            )
        else:
            for group, origin in decodable:
                detail = f"for table {table}"
                rejected += reject(group, origin, Reason.TOO_MANY_TABLES, detail)
        # Routes without a table are only in the quarantine: their number is unbounded.
        if plan.names.bronze and known:
            in_bronze += [origin.rows for _, origin in groups]
            yield _stage_bronze(plan, plan.names.bronze, groups)
    if rejected:
        staged = _stage_quarantine(plan, records, rejected, in_bronze)
        yield replace(staged, blocked=tuple(blocked), expectations=tuple(expectations))


def _moved(rejected: list[Rejected], rows: np.ndarray) -> list[Rejected]:
    return [replace(one, row=int(rows[one.row])) for one in rejected]


def _of_shard(shard: Shard, records: pa.Table, rejected: list[Rejected]) -> list[Rejected]:
    """Return the records without a route that are a shard's own, by their partition."""
    rows = pa.array([one.row for one in rejected], pa.int64())
    partitions = records.column("partition").take(rows).to_pylist()
    return [*compress(rejected, [(one or 0) % shard.of == shard.number - 1 for one in partitions])]


def _table_by_table(
    plan: RecordPlan, groups: Iterable[Group], origins: PortionOrigins, decoders: Decoders
) -> Iterator[tuple[str, list[GroupWithOrigins], DecodedGroups]]:
    """Return the groups of each table with their origins and what is decoded of them so far.

    Columns are decoded and copied one share at a time: those of a whole portion would take too much
    memory.
    """
    for share in _shares(plan, groups, decoders):
        members = [group for of_table in share.values() for group in of_table]
        decoded = decode_small_groups(members, decoders)
        origin_of = dict(zip(members, origins.of(members), strict=True))
        for table, of_table in share.items():
            yield table, [(group, origin_of[group]) for group in of_table], decoded


def _shares(
    plan: RecordPlan, groups: Iterable[Group], decoders: Decoders
) -> Iterator[Mapping[str, list[Group]]]:
    """Split groups into shares, keeping those of a table together up to the size of a file."""
    by_table: dict[str, list[Group]] = defaultdict(list)
    for group in groups:
        by_table[plan.names.silver_for(group.route)].append(group)
    share: dict[str, list[Group]] = defaultdict(list)
    rows = cells = 0
    for table, of_table in by_table.items():
        for group in of_table:
            share[table].append(group)
            rows += len(group.rows)
            cells += len(group.rows) * _width(decoders, group)
            most = _MAX_SHARE_ROWS if group is of_table[-1] else _MAX_FILE_ROWS
            if rows >= most or cells >= MAX_CELLS:
                yield share
                share, rows, cells = defaultdict(list), 0, 0
    if share:
        yield share


def _width(decoders: Decoders, group: Group) -> int:
    decoder = decoders.decoder(*group.message)
    return 0 if isinstance(decoder, Refusal) else decoder.width


def _has_decoder(
    decoders: Decoders, group: Group, origin: Origins, rejected: list[Rejected]
) -> bool:
    decoder = decoders.decoder(*group.message)
    if isinstance(decoder, Refusal):
        rejected += reject(group, origin, decoder.reason, decoder.detail)
    return not isinstance(decoder, Refusal)


def _stage_bronze(plan: RecordPlan, bronze: str, groups: list[GroupWithOrigins]) -> StagedFile:
    parts = [
        DecodedPart(pa.record_batch({"payload": group.payloads}), origin, group.message[0])
        for group, origin in groups
    ]
    ((rows, ids),) = join_parts(parts)
    route = groups[0][0].route
    return write_parquet(
        plan.lake,
        bronze,
        plan.new_file(),
        rows,
        route=route,
        schema_ids=ids,
        partition={"route": route},
    )


def _stage_quarantine(
    plan: RecordPlan, records: pa.Table, rejected: list[Rejected], in_bronze: list[np.ndarray]
) -> StagedFile:
    at = pa.scalar(datetime.now(UTC), pa.timestamp("us", "UTC"))
    bronze_rows = np.concatenate(in_bronze) if in_bronze else np.empty(0, np.int64)
    rows = quarantine_rows(records, rejected, plan.version, at, bronze_rows)
    reasons = Counter(one.reason.value for one in rejected)
    name = plan.new_file()
    return write_parquet(plan.lake, plan.names.quarantine, name, rows, reasons=dict(reasons))


def _check_sizes(records: pa.Table, max_bytes: int) -> tuple[np.ndarray | None, list[Rejected]]:
    """Return the rows to open, None for all; reject those that are null or too large."""
    values = records.column("value")
    lengths = pc.binary_length(values).fill_null(-1).combine_chunks().to_numpy()
    rejected = [Rejected(int(row), Reason.NULL_VALUE) for row in np.flatnonzero(lengths < 0)]
    for row in np.flatnonzero(lengths > max_bytes):
        rejected.append(Rejected(int(row), Reason.TOO_LARGE, f"{lengths[row]} bytes"))
    if not rejected:
        return None, rejected
    return np.flatnonzero((lengths >= 0) & (lengths <= max_bytes)), rejected


def _rows_at(records: pa.Table, rows: np.ndarray | None) -> pa.Table:
    return records if rows is None else records.take(pa.array(rows))
