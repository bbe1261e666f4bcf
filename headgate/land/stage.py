"""In the executors: records in, Parquet files out, one small row a file back to the driver."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate import errors
from headgate.envelope.opened import Group, Rejected
from headgate.errors import HeadgateError
from headgate.land.staged_file import StagedFile
from headgate.land.staging_plan import StagingPlan
from headgate.land.write_parquet import write_parquet
from headgate.quarantine.quarantined import quarantined
from headgate.quarantine.reason import Reason
from headgate.schema.decoder import Decoders, Refusal
from headgate.schema.open_registry import open_registry
from headgate.schema.origin import SOURCE_COLUMNS

STAGED = pa.schema([pa.field("file", pa.string()), pa.field("error", pa.string())])
STAGED_DDL = "file string, error string"

_LARGEST_PORTION = 128 << 20

_decoders: dict[str, Decoders] = {}
"""Kept as long as the worker process lives, so that each schema is asked for once."""


def stage(plan: StagingPlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The body of the one Spark job of a batch."""
    known = repr(plan.registry)
    made: set[str] = set()
    try:
        if known not in _decoders:
            _decoders[known] = Decoders(open_registry(plan.registry))
        for portion in _portions(batches):
            for file in _stage_portion(plan, portion, _decoders[known], made):
                yield _told(file=file.to_json())
    except HeadgateError as error:
        # As data: an exception would reach the driver as the text of a traceback.
        yield _told(error=json.dumps([type(error).__name__, *error.parts]))


def _told(file: str | None = None, error: str | None = None) -> pa.RecordBatch:
    return pa.record_batch([pa.array([file], pa.string()), pa.array([error], pa.string())], STAGED)


def _portions(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """As many records at a time as memory should hold: the fewer portions, the fewer files."""
    gathered: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        gathered.append(batch)
        size += batch.nbytes
        if size >= _LARGEST_PORTION:
            yield _portion(gathered)
            gathered, size = [], 0
    if size:
        yield _portion(gathered)


def _portion(batches: list[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches).cast(SOURCE_COLUMNS).combine_chunks()


def _stage_portion(
    plan: StagingPlan, records: pa.Table, decoders: Decoders, made: set[str]
) -> Iterator[StagedFile]:
    fit_to_open, rejected = _set_aside(records, plan.max_record_bytes)
    opened = plan.envelope.open(records.take(fit_to_open), decoders)
    rows_of = fit_to_open.to_numpy()
    rejected += [_at_row(one, int(rows_of[one.row])) for one in opened.rejected]
    by_table: dict[str, list[Group]] = defaultdict(list)
    for group in opened.groups:
        by_table[plan.names.silver_for(group.route)].append(
            Group(group.route, group.message, rows_of[group.rows], group.payloads)
        )
    for table, groups in by_table.items():
        if plan.may_write(table, made):
            if table not in plan.known_tables:
                made.add(table)
            yield from _stage_table(plan, table, groups, records, decoders, rejected)
        else:
            for group in groups:
                rejected += _reject(group, Reason.TOO_MANY_TABLES, f"for table {table}")
    if plan.names.bronze:
        yield from _stage_bronze(plan, opened.groups, rows_of, records)
    if rejected:
        at = pa.scalar(datetime.now(UTC), pa.timestamp("us", "UTC"))
        reasons = Counter(one.reason.value for one in rejected)
        yield write_parquet(
            plan,
            plan.names.quarantine,
            quarantined(records, rejected, plan.version, at),
            reasons=dict(reasons),
        )


def _stage_table(
    plan: StagingPlan,
    table: str,
    groups: list[Group],
    records: pa.Table,
    decoders: Decoders,
    rejected: list[Rejected],
) -> Iterator[StagedFile]:
    """One file for all schemas of a table, as long as they agree about types."""
    parts: list[pa.Table] = []
    schema_ids: set[int] = set()
    for group in groups:
        decoder = decoders.decoder(*group.message)
        if isinstance(decoder, Refusal):
            rejected += _reject(group, decoder.reason, decoder.detail)
            continue
        decoded = decoder.decode(group.payloads)
        key = group.message[0]
        rejected += [
            Rejected(
                int(group.rows[position]), Reason.PAYLOAD_UNDECODABLE, detail, group.route, key
            )
            for position, detail in decoded.bad.items()
        ]
        rows = np.delete(group.rows, list(decoded.bad)) if decoded.bad else group.rows
        if len(rows):
            if isinstance(key, int):
                schema_ids.add(key)
            parts.append(_with_origin(decoded.columns, records, rows, key))
    for joined in _joined(parts):
        yield write_parquet(
            plan,
            table,
            joined,
            route=groups[0].route,
            schema_ids=tuple(sorted(schema_ids)),
        )


def _joined(parts: list[pa.Table]) -> list[pa.Table]:
    if len(parts) < 2:
        return parts
    try:
        return [pa.concat_tables(parts, promote_options="default")]
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return parts


def _with_origin(
    columns: pa.RecordBatch, records: pa.Table, rows: np.ndarray, key: int | str
) -> pa.Table:
    """The message's columns, then where each record came from."""
    origin = records.drop_columns(["value"]).take(pa.array(rows))
    names, arrays = list(columns.schema.names), list(columns.columns)
    for name, column in zip(origin.column_names, origin.columns, strict=True):
        # A column of nothing but nulls costs a file as much as a full one, and says less.
        if column.null_count < len(rows):
            names.append(f"_{name}")
            arrays.append(column)
    if isinstance(key, int):
        names.append("_schema_id")
        arrays.append(pa.repeat(pa.scalar(key, pa.int64()), len(rows)))
    return pa.table(arrays, names=names)


def _stage_bronze(
    plan: StagingPlan, groups: list[Group], rows_of: np.ndarray, records: pa.Table
) -> Iterator[StagedFile]:
    assert plan.names.bronze
    by_route: dict[str, list[Group]] = defaultdict(list)
    for group in groups:
        by_route[group.route].append(group)
    for route, mine in by_route.items():
        parts = [
            _with_origin(
                pa.record_batch({"payload": group.payloads}),
                records,
                rows_of[group.rows],
                group.message[0],
            )
            for group in mine
        ]
        yield write_parquet(
            plan,
            plan.names.bronze,
            pa.concat_tables(parts, promote_options="default"),
            route=route,
            partition={"route": route},
        )


def _set_aside(records: pa.Table, largest: int) -> tuple[pa.Array, list[Rejected]]:
    """Records without a value and records too large never reach a decoder."""

    values = records.column("value")
    lengths = pc.binary_length(values).fill_null(-1).combine_chunks().to_numpy()
    rejected = [Rejected(int(row), Reason.NULL_VALUE) for row in np.flatnonzero(lengths < 0)]
    for row in np.flatnonzero(lengths > largest):
        rejected.append(Rejected(int(row), Reason.TOO_LARGE, f"{lengths[row]} bytes"))
    return pa.array(np.flatnonzero((lengths >= 0) & (lengths <= largest))), rejected


def _reject(group: Group, reason: Reason, detail: str) -> list[Rejected]:
    return [Rejected(int(row), reason, detail, group.route, group.message[0]) for row in group.rows]


def _at_row(one: Rejected, row: int) -> Rejected:
    return Rejected(row, one.reason, one.detail, one.route, one.schema_key)


def staged_files(rows: Iterable[tuple[str | None, str | None]]) -> list[StagedFile]:
    """What the job gave back, as values; an executor's error is raised here."""
    files = []
    for file, error in rows:
        if error is not None:
            name, *parts = json.loads(error)
            raise getattr(errors, name)(*parts)
        assert file is not None
        files.append(StagedFile.from_json(file))
    return files
