"""In the executors: records in, Parquet files out, one small row a file back to the driver."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate import errors
from headgate.config import Mode, Registry
from headgate.engine.quarantined import quarantined
from headgate.engine.record_plan import StagingPlan
from headgate.engine.stage_table import (
    AllOrigins,
    DecodedAhead,
    GroupOf,
    Origins,
    Part,
    decode_ahead,
    joined,
    reject,
    stage_table,
    without_table,
)
from headgate.envelopes.opened import Group, Rejected, open_in_pieces, pause_collection
from headgate.errors import HeadgateError
from headgate.formats.decoder import Refusal
from headgate.formats.decoders import Decoders
from headgate.lake.parquet import write_parquet
from headgate.lake.staged import Checked, StagedFile, Withheld
from headgate.reasons import Reason
from headgate.registry.open import open_registry
from headgate.schema.origin import as_records

STAGED = pa.schema([pa.field("file", pa.string()), pa.field("error", pa.string())])
STAGED_DDL = "file string, error string"
Told = tuple[str | None, str | None]
"""A file, or an error, as text."""

_LARGEST_PORTION = 384 << 20
_PIECE = 100_000
"""Records that are opened together: a processor's caches have room for them."""
_ROWS_TOGETHER = 250_000
"""Records whose columns are in memory together, where they are of several tables."""
_ROWS_OF_A_FILE = 1_000_000
"""Of one table, so many at most: a file has them all."""

_decoders: dict[str, Decoders] = {}
"""Kept as long as the worker process lives, so that each schema is asked for once."""


def forget_schemas(registry: Registry) -> None:
    """The registry may know by now what it did not know before."""
    _decoders.pop(repr(registry), None)


def stage(plan: StagingPlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The body of the one Spark job of a batch."""
    known = repr(plan.registry)
    made: set[str] = set()
    try:
        if known not in _decoders:
            _decoders[known] = Decoders(open_registry(plan.registry))
        for portion in _portions(batches):
            with pause_collection():
                files = list(_stage_portion(plan, portion, _decoders[known], made))
            yield told_files(files)
    except HeadgateError as error:
        # As data: an exception would reach the driver as the text of a traceback.
        yield told_error(type(error).__name__, *error.parts)
    finally:
        # The process lives on, and may have nothing to do for long.
        pa.default_memory_pool().release_unused()


def told_files(files: Iterable[StagedFile]) -> pa.RecordBatch:
    """What a task says to the driver of files that it wrote."""
    texts = [file.to_json() for file in files]
    return _told(texts, [None] * len(texts))


def told_error(name: str, *parts: object) -> pa.RecordBatch:
    return _told([None], [json.dumps([name, *parts])])


def _told(*columns: Sequence[str | None]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(texts, pa.string()) for texts in columns], STAGED)


def all_told(batches: Iterable[pa.RecordBatch]) -> Iterator[Told]:
    """What a task said, where it was not Spark that ran it."""
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _portions(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """As many records at a time as memory should hold: the fewer portions, the fewer files."""
    pieces: list[pa.Table] = []
    small: list[pa.RecordBatch] = []
    size = rows = 0
    for batch in batches:
        small.append(batch)
        size += batch.nbytes
        rows += len(batch)
        if rows >= _PIECE or size >= _LARGEST_PORTION:
            pieces.append(_in_one_piece(small))
            small, rows = [], 0
        if size >= _LARGEST_PORTION:
            yield pa.concat_tables(pieces)
            pieces, size = [], 0
    if small:
        pieces.append(_in_one_piece(small))
    if pieces:
        yield pa.concat_tables(pieces)


def _in_one_piece(batches: list[pa.RecordBatch]) -> pa.Table:
    return as_records(pa.Table.from_batches(batches)).combine_chunks()


def _stage_portion(
    plan: StagingPlan, records: pa.Table, decoders: Decoders, made: set[str]
) -> Iterator[StagedFile]:
    to_open, rejected = _set_aside(records, plan.max_record_bytes)
    opened = open_in_pieces(plan.envelope, _rows_at(records, to_open), decoders)
    rejected += [replace(one, row=int(to_open[one.row])) for one in opened.rejected]
    origins = AllOrigins(records, to_open)
    withheld: list[Withheld] = []
    checked: list[Checked] = []
    in_bronze: list[np.ndarray] = []
    for table, groups, ahead in _table_by_table(plan, opened.groups, origins, decoders):
        known = table in plan.known_tables or table in made
        decodable = [one for one in groups if _has_decoder(decoders, *one, rejected)]
        if decodable and not known and plan.contract.for_table(table).tables is not Mode.EVOLVE:
            rejected += without_table(plan, table, decodable, decoders, withheld)
        elif decodable and plan.may_write(table, made):
            known = True
            made.update({table} - plan.known_tables)
            yield from stage_table(
                plan, table, decodable, decoders, ahead, rejected, withheld, checked
            )
        else:
            for group, origin in decodable:
                detail = f"for table {table}"
                rejected += reject(group, origin, Reason.TOO_MANY_TABLES, detail)
        # Routes that have no table are in quarantine only: they could be any number.
        if plan.names.bronze and known:
            in_bronze += [origin.rows for _, origin in groups]
            yield _stage_bronze(plan, plan.names.bronze, groups)
    if rejected:
        staged = _stage_quarantine(plan, records, rejected, in_bronze)
        yield replace(staged, withheld=tuple(withheld), expectations=tuple(checked))


def _table_by_table(
    plan: StagingPlan, groups: Iterable[Group], origins: AllOrigins, decoders: Decoders
) -> Iterator[tuple[str, list[GroupOf], DecodedAhead]]:
    """Decoded and copied a share at a time: all of a portion would take too much memory."""
    for share in _shares(plan, groups):
        several = [group for of in share.values() for group in of]
        ahead = decode_ahead(several, decoders)
        origin_of = dict(zip(several, origins.of(several), strict=True))
        for table, of in share.items():
            yield table, [(group, origin_of[group]) for group in of], ahead


def _shares(plan: StagingPlan, groups: Iterable[Group]) -> Iterator[Mapping[str, list[Group]]]:
    """All groups of a table together, but for a table that has more than a file of records."""
    by_table: dict[str, list[Group]] = defaultdict(list)
    for group in groups:
        by_table[plan.names.silver_for(group.route)].append(group)
    share: dict[str, list[Group]] = defaultdict(list)
    rows = 0
    for table, of in by_table.items():
        for group in of:
            share[table].append(group)
            rows += len(group.rows)
            if rows >= (_ROWS_TOGETHER if group is of[-1] else _ROWS_OF_A_FILE):
                yield share
                share, rows = defaultdict(list), 0
    if share:
        yield share


def _has_decoder(
    decoders: Decoders, group: Group, origin: Origins, rejected: list[Rejected]
) -> bool:
    decoder = decoders.decoder(*group.message)
    if isinstance(decoder, Refusal):
        rejected += reject(group, origin, decoder.reason, decoder.detail)
    return not isinstance(decoder, Refusal)


def _stage_bronze(plan: StagingPlan, bronze: str, groups: list[GroupOf]) -> StagedFile:
    parts = [
        Part(pa.record_batch({"payload": group.payloads}), origin, group.message[0])
        for group, origin in groups
    ]
    ((rows, ids),) = joined(parts)
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
    plan: StagingPlan, records: pa.Table, rejected: list[Rejected], in_bronze: list[np.ndarray]
) -> StagedFile:
    at = pa.scalar(datetime.now(UTC), pa.timestamp("us", "UTC"))
    there = np.concatenate(in_bronze) if in_bronze else np.empty(0, np.int64)
    rows = quarantined(records, rejected, plan.version, at, there)
    reasons = Counter(one.reason.value for one in rejected)
    name = plan.new_file()
    return write_parquet(plan.lake, plan.names.quarantine, name, rows, reasons=dict(reasons))


def _set_aside(records: pa.Table, largest: int) -> tuple[np.ndarray, list[Rejected]]:
    """Records without a value and records too large never reach a decoder."""

    values = records.column("value")
    lengths = pc.binary_length(values).fill_null(-1).combine_chunks().to_numpy()
    rejected = [Rejected(int(row), Reason.NULL_VALUE) for row in np.flatnonzero(lengths < 0)]
    for row in np.flatnonzero(lengths > largest):
        rejected.append(Rejected(int(row), Reason.TOO_LARGE, f"{lengths[row]} bytes"))
    return np.flatnonzero((lengths >= 0) & (lengths <= largest)), rejected


def _rows_at(records: pa.Table, rows: np.ndarray) -> pa.Table:
    return records if len(rows) == len(records) else records.take(pa.array(rows))


def staged_files(rows: Iterable[Told]) -> list[StagedFile]:
    """What the job gave back, as values; an executor's error is raised here."""
    files = []
    for file, error in rows:
        if error is not None:
            name, *parts = json.loads(error)
            raise getattr(errors, name)(*parts)
        assert file is not None
        files.append(StagedFile.from_json(file))
    return files
