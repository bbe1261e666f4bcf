"""In the executors, then: the rows of a table from all files, each change once, written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate import errors
from headgate.cdc.chunk import Chunk, unpacked
from headgate.cdc.open import reasons_of
from headgate.cdc.plan import ChangePlan
from headgate.engine.task_results import encode_error, encode_files
from headgate.envelopes.datastream.changes import LOG_COLUMN_NAMES
from headgate.errors import HeadgateError
from headgate.lake.parquet import column_of, write_parquet
from headgate.lake.snapshot import Snapshot, table_url
from headgate.lake.staged import ExpectationResult, StagedFile, encode_schema, sum_expectations
from headgate.schema.field_metadata import kept_apart_from


def numbers_alike(rows: pa.Table, others: Iterable[pa.Schema]) -> pa.Table:
    """The rows with whole numbers as floating ones, or the other way round, where others have
    them so and no number becomes another one."""
    kinds: dict[str, pa.DataType] = {}
    for schema in others:
        for field in schema:
            kinds.setdefault(field.name, field.type)
    for at, field in enumerate(rows.schema):
        wanted = kinds.get(field.name)
        if {field.type, wanted} == {pa.int64(), pa.float64()}:
            column = _exactly(rows.column(at), wanted)
            if column is not None:
                rows = rows.set_column(at, field.with_type(wanted), column)
    return rows


def _exactly(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray | None:
    try:
        cast = column.cast(wanted)
        back = cast.cast(column.type)
    except pa.ArrowInvalid:
        return None
    same = pc.all(pc.equal(back, column)).as_py()
    return cast if same is not False else None


def stage_changes(plan: ChangePlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows come in the order of their tables' names: one table at a time is in memory."""
    try:
        for table, chunks in groupby(unpacked(batches), key=lambda chunk: chunk.table):
            yield encode_files(_stage_table(plan, table, list(chunks)))
    except HeadgateError as error:
        yield encode_error(type(error).__name__, *error.parts)


def _stage_table(plan: ChangePlan, table: str, chunks: Sequence[Chunk]) -> Iterator[StagedFile]:
    for chunk in chunks:
        if chunk.told.error is not None:
            raise _raised(chunk.told.error)
    if table in plan.own_tables:
        rows = pa.concat_tables([chunk.rows for chunk in chunks])
        reasons = reasons_of(rows) if table == plan.quarantine else None
        file = write_parquet(plan.lake, table, plan.new_file(), rows, reasons=reasons)
        withheld = tuple(one for chunk in chunks for one in chunk.told.withheld)
        yield replace(file, blocked=withheld, expectations=_checked(chunks))
        return
    there = Snapshot.newest(plan.lake, table)
    seen = _uuids_landed(plan, table, chunks, there)
    contested = _contested_shapes(plan, table, chunks)
    dropped = _dropped(plan, table, chunks, there)
    for (route, lineages), told in _by_origin(chunks).items():
        parts = _alike(told, there)
        withheld = tuple(one for chunk in told for one in chunk.told.withheld)
        checked = _checked(told)
        for rows in _joined(parts):
            rows = _once(rows, seen)
            if not len(rows):
                continue
            file = write_parquet(plan.lake, table, plan.new_file(), rows, route=route)
            yield replace(
                file,
                lineages=lineages,
                blocked=withheld,
                expectations=checked,
                new_schemas=contested,
                dropped=dropped,
            )
            withheld, checked, dropped = (), (), ()


def _checked(chunks: Sequence[Chunk]) -> tuple[ExpectationResult, ...]:
    return tuple(sum_expectations(one for chunk in chunks for one in chunk.told.expectations))


def _by_origin(chunks: Sequence[Chunk]) -> dict[tuple[str | None, tuple[str, ...]], list[Chunk]]:
    """As a rule there is one: where tasks chose otherwise of a new table, the driver chooses."""
    found: dict[tuple[str | None, tuple[str, ...]], list[Chunk]] = {}
    known = {chunk.told.lineages for chunk in chunks if chunk.told.lineages}
    for chunk in chunks:
        # A backfill has none, and goes with any.
        lineages = chunk.told.lineages or (min(known) if known else ())
        found.setdefault((chunk.told.route, lineages), []).append(chunk)
    return found


def _contested_shapes(
    plan: ChangePlan, table: str, chunks: Sequence[Chunk]
) -> dict[str, str] | None:
    """The columns that tasks took for those of a new table, the source's oldest first."""
    if table in plan.shapes or not plan.contract.for_table(table).strict:
        return None
    oldest: dict[str, str] = {}
    for chunk in chunks:
        names = [name for name in chunk.rows.column_names if not name.startswith("_")]
        shape = encode_schema(chunk.rows.select(names).schema)
        first = pc.min(chunk.rows["_order"]).as_py()
        oldest[shape] = min(first, oldest.get(shape, first))
    if len(oldest) < 2:
        return None
    return {str(at): shape for at, shape in enumerate(sorted(oldest, key=oldest.__getitem__))}


def _alike(chunks: Sequence[Chunk], there: Snapshot | None) -> list[pa.Table]:
    """The rows; those of files without a schema in the types that others have."""
    known = [there.schema] if there is not None else []
    known += [chunk.rows.schema for chunk in chunks if chunk.told.columns is not None]
    floating = [
        pa.schema([field for field in chunk.rows.schema if pa.types.is_floating(field.type)])
        for chunk in chunks
    ]
    return [
        chunk.rows
        if chunk.told.columns is not None
        else numbers_alike(chunk.rows, [*known, *floating])
        for chunk in chunks
    ]


def _joined(parts: Sequence[pa.Table]) -> list[pa.Table]:
    """One table, unless the parts differ about types."""
    try:
        return [pa.concat_tables(parts, promote_options="default").combine_chunks()]
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        by_types: dict[str, list[pa.Table]] = {}
        for part in parts:
            by_types.setdefault(str(part.schema), []).append(part)
        return [pa.concat_tables(one).combine_chunks() for one in by_types.values()]


def _once(rows: pa.Table, seen: set[str]) -> pa.Table:
    """Without changes that have landed, or came before among these."""
    uuids = rows["_uuid"].to_pylist()
    if seen.isdisjoint(uuids) and len(set(uuids)) == len(uuids):
        seen.update(uuids)
        return rows
    new = np.ones(len(rows), bool)
    for at, uuid in enumerate(uuids):
        new[at] = uuid not in seen
        seen.add(uuid)
    return rows.filter(pa.array(new))


def _dropped(
    plan: ChangePlan, table: str, chunks: Sequence[Chunk], there: Snapshot | None
) -> tuple[str, ...]:
    """Columns that the newest of all changes has no more."""
    known = plan.known.get(table)
    newest = max(chunks, key=lambda chunk: pc.max(chunk.rows["_order"]).as_py() or "")
    if there is None or known is None or newest.told.columns is None:
        return ()
    _, latest = _span([newest])
    if latest is None or (known.newest is not None and latest.as_py() < known.newest):
        return ()
    own = [field for field in there.schema if field.name not in LOG_COLUMN_NAMES]
    return tuple(
        field.name
        for field in own
        if field.name not in newest.told.columns and kept_apart_from(field) is None
    )


def _uuids_landed(
    plan: ChangePlan, table: str, chunks: Sequence[Chunk], there: Snapshot | None
) -> set[str]:
    """Of changes in the log, those that could be told again by these.

    A change that is told again has the source time it had the first time: files of other times
    need not be read.
    """
    folder = table_url(plan.lake, table)
    paths = [f"{folder}/{name}" for name in plan.waiting.get(table, ())]
    if there is not None:
        paths += _overlapping(there.statistics(), chunks)
    seen: set[str] = set()
    for path in paths:
        seen.update(column_of(path, "_uuid"))
    return seen


def _overlapping(added: pa.Table, chunks: Sequence[Chunk]) -> list[str]:
    paths: list[str] = added["path"].to_pylist()
    earliest, latest = _span(chunks)
    bounds = [f"{bound}._source_timestamp" for bound in ("min", "max")]
    if earliest is None or latest is None or not set(bounds) <= set(added.column_names):
        return paths
    firsts, lasts = (added[name].cast(pa.timestamp("us", "UTC")) for name in bounds)
    apart = pc.or_(pc.greater(firsts, latest), pc.less(lasts, earliest)).fill_null(False)
    return [path for path, is_apart in zip(paths, apart.to_pylist(), strict=True) if not is_apart]


def _span(chunks: Sequence[Chunk]) -> tuple[pa.Scalar | None, pa.Scalar | None]:
    """From when to when the changes are; nobody knows if any of them has no time."""
    earliest, latest = [], []
    for chunk in chunks:
        if "_source_timestamp" not in chunk.rows.column_names:
            return None, None
        times = chunk.rows["_source_timestamp"]
        if times.null_count:
            return None, None
        earliest.append(pc.min(times).as_py())
        latest.append(pc.max(times).as_py())
    kind = pa.timestamp("us", "UTC")
    return pa.scalar(min(earliest), kind), pa.scalar(max(latest), kind)


def _raised(error: Sequence[str | None]) -> HeadgateError:
    name, *parts = error
    raised: HeadgateError = getattr(errors, str(name))(*parts)
    return raised
