"""Second step in the executors: write the rows of each table from all files, each change once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import groupby
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headgate import errors
from headgate.cdc.chunk import CHUNK, CHUNK_DDL, POSITION, Chunk, read_chunks
from headgate.cdc.open import open_changes, reasons_of
from headgate.cdc.plan import ChangePlan
from headgate.cdc.repeated import KnownChanges, read_changes
from headgate.cdc.source_tables import known_logs_with_replays, microseconds
from headgate.config import PipelineConfig
from headgate.engine.task_results import RESULT_DDL, encode_error, encode_files
from headgate.errors import HeadgateError
from headgate.lake.log import identify_entry
from headgate.lake.open_tables import TableCache
from headgate.lake.parquet import write_parquet
from headgate.lake.snapshot import Snapshot
from headgate.lake.staged import ExpectationResult, StagedFile, encode_schema, sum_expectations
from headgate.lake.tables import table_url

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True)
class ChangeStaging(ChangePlan):
    """A plan that stages its batch: in a Spark job, or in this process."""

    def job(self, rows: DataFrame, tasks: int) -> DataFrame:
        """Open files where they are, then bring all rows of a table into one task."""
        if tasks == 1:
            return super().job(rows, tasks)
        opened = rows.mapInArrow(partial(open_changes, self), CHUNK_DDL)
        cores = rows.sparkSession.sparkContext.defaultParallelism
        together = opened.repartition(cores, "table").sortWithinPartitions("table")
        return together.mapInArrow(partial(stage_changes, self), RESULT_DDL)

    def stage(self, records: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        opened = pa.Table.from_batches(open_changes(self, records), CHUNK)
        return stage_changes(self, opened.sort_by("table").to_batches())


def align_number_types(rows: pa.Table, others: Iterable[pa.Schema]) -> pa.Table:
    """Cast between integers and floats where other schemas have the other type.

    A column is cast only if every value stays exactly the same.
    """
    types: dict[str, pa.DataType] = {}
    for schema in others:
        for field in schema:
            types.setdefault(field.name, field.type)
    for at, field in enumerate(rows.schema):
        wanted = types.get(field.name)
        if {field.type, wanted} == {pa.int64(), pa.float64()}:
            column = _cast_exactly(rows.column(at), wanted)
            if column is not None:
                rows = rows.set_column(at, field.with_type(wanted), column)
    return rows


def _cast_exactly(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray | None:
    try:
        cast = column.cast(wanted)
        back = cast.cast(column.type)
    except pa.ArrowInvalid:
        return None
    same = pc.all(pc.equal(back, column)).as_py()
    return cast if same is not False else None


def stage_changes(plan: ChangePlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Stage rows that are sorted by table, one table at a time in memory."""
    try:
        for table, chunks in groupby(read_chunks(batches), key=lambda chunk: chunk.table):
            stage = _stage_own_table if table in plan.own_tables else _stage_log
            yield encode_files(stage(plan, table, chunks))
    except HeadgateError as error:
        yield encode_error(type(error).__name__, *error.parts)


_OWN_FILE_SIZE = 128 << 20
"""Bytes of quarantined records in memory at a time."""


def _stage_own_table(plan: ChangePlan, table: str, chunks: Iterable[Chunk]) -> Iterator[StagedFile]:
    """Stage rows of the quarantine or of the table of files."""
    for portion in _portions(chunks):
        rows = pa.concat_tables([chunk.rows for chunk in portion])
        reasons = reasons_of(rows) if table == plan.quarantine else None
        file = write_parquet(plan.lake, table, plan.new_file(), rows, reasons=reasons)
        blocked = tuple(change for chunk in portion for change in chunk.metadata.blocked)
        yield replace(file, blocked=blocked, expectations=_checked(portion))


def _portions(chunks: Iterable[Chunk]) -> Iterator[list[Chunk]]:
    gathered: list[Chunk] = []
    size = 0
    for chunk in chunks:
        if gathered and size + chunk.rows.nbytes > _OWN_FILE_SIZE:
            yield gathered
            gathered, size = [], 0
        gathered.append(chunk)
        size += chunk.rows.nbytes
    if gathered:
        yield gathered


def _stage_log(plan: ChangePlan, table: str, chunks: Iterable[Chunk]) -> Iterator[StagedFile]:
    chunks = list(chunks)
    for chunk in chunks:
        if chunk.metadata.error is not None:
            raise _to_error(chunk.metadata.error)
    log = _Log(plan.lake, table)
    known = KnownChanges(
        list(_landed_changes(plan, log, chunks)),
        lambda: log.schema,
        plan.contract.for_table(table).strict,
    )
    conflicting = _conflicting_schemas(plan, table, chunks)
    columns = _source_columns(plan, table, chunks)
    origins = _by_origin(chunks)
    for (route, lineages), group in origins.items():
        parts = _align_types(group, log)
        blocked = tuple(change for chunk in group for change in chunk.metadata.blocked)
        checked = _checked(group)
        for part in _concatenate(parts):
            rows, reused = known.take_new(part)
            # The order of changes is not known yet while tasks disagree about a new table.
            reused = reused if len(origins) == 1 else {}
            if not len(rows) and not reused:
                continue
            rows = rows.drop_columns([POSITION])
            file = write_parquet(plan.lake, table, plan.new_file(), rows, route=route)
            yield replace(
                file,
                lineages=lineages,
                blocked=blocked,
                expectations=checked,
                new_schemas=conflicting,
                source_columns=columns,
                reused=reused,
            )
            blocked, checked, columns = (), (), None


class _Log:
    """A change log, opened only if it is needed; without a schema if it does not exist."""

    def __init__(self, lake: str, table: str) -> None:
        self.table = table
        self._lake = lake

    @cached_property
    def snapshot(self) -> Snapshot | None:
        return Snapshot.newest(self._lake, self.table)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([]) if self.snapshot is None else self.snapshot.schema

    def ends_at(self, version: int) -> bool:
        """Whether a version is the newest."""
        return identify_entry(table_url(self._lake, self.table), version + 1) is None


def _checked(chunks: Sequence[Chunk]) -> tuple[ExpectationResult, ...]:
    return tuple(
        sum_expectations(result for chunk in chunks for result in chunk.metadata.expectations)
    )


def _by_origin(chunks: Sequence[Chunk]) -> dict[tuple[str | None, tuple[str, ...]], list[Chunk]]:
    """Group chunks by route and lineages.

    There are several groups only if tasks disagree about a new table; the driver then decides.
    """
    found: dict[tuple[str | None, tuple[str, ...]], list[Chunk]] = {}
    known = {chunk.metadata.lineages for chunk in chunks if chunk.metadata.lineages}
    for chunk in chunks:
        # A backfill has no lineage, and goes with any.
        lineages = chunk.metadata.lineages or (min(known) if known else ())
        found.setdefault((chunk.metadata.route, lineages), []).append(chunk)
    return found


def _conflicting_schemas(
    plan: ChangePlan, table: str, chunks: Sequence[Chunk]
) -> dict[str, str] | None:
    """Return the schemas that tasks chose for a new table, oldest change first, if they differ."""
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


def _align_types(chunks: Sequence[Chunk], log: _Log) -> list[pa.Table]:
    """Return the rows; those of files without a schema get the number types of the others."""
    if all(chunk.metadata.columns is not None for chunk in chunks):
        return [chunk.rows for chunk in chunks]
    known = [log.schema]
    known += [chunk.rows.schema for chunk in chunks if chunk.metadata.columns is not None]
    floating = [
        pa.schema([field for field in chunk.rows.schema if pa.types.is_floating(field.type)])
        for chunk in chunks
    ]
    return [
        chunk.rows
        if chunk.metadata.columns is not None
        else align_number_types(chunk.rows, [*known, *floating])
        for chunk in chunks
    ]


def _concatenate(parts: Sequence[pa.Table]) -> list[pa.Table]:
    """Concatenate the parts into one table, or one per schema if their types differ."""
    try:
        return [pa.concat_tables(parts, promote_options="default").combine_chunks()]
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        by_types: dict[str, list[pa.Table]] = {}
        for part in parts:
            by_types.setdefault(str(part.schema), []).append(part)
        return [pa.concat_tables(same).combine_chunks() for same in by_types.values()]


def _source_columns(
    plan: ChangePlan, table: str, chunks: Sequence[Chunk]
) -> tuple[str, ...] | None:
    """Return the columns of the newest change; None if the log has a newer one."""
    source = plan.known.get(table)
    newest = max(chunks, key=lambda chunk: pc.max(chunk.rows["_order"]).as_py() or "")
    if source is None or newest.metadata.columns is None:
        return None
    _, latest = _span([newest])
    if latest is None or (source.newest is not None and latest < microseconds(source.newest)):
        return None
    return newest.metadata.columns


def _landed_changes(plan: ChangePlan, log: _Log, chunks: Sequence[Chunk]) -> Iterator[pa.Table]:
    """Yield landed changes whose UUIDs are in these chunks.

    A repeated change has the same source timestamp, so only files of that time span are read.
    """
    span = _span(chunks)
    paths = list(plan.waiting.get(log.table, ()))
    if not _are_later(plan, log, span) and log.snapshot is not None:
        paths += _overlapping(log.snapshot.statistics(), span)
    if not paths:
        return
    uuids = {uuid for chunk in chunks for uuid in chunk.rows["_uuid"].to_pylist()}
    for path in paths:
        found = read_changes(path, uuids)
        if found is not None:
            yield found


_Span = tuple[int, int] | tuple[None, None]
"""The first and the last time, in microseconds since 1970; none if a change has no time."""


def _are_later(plan: ChangePlan, log: _Log, span: _Span) -> bool:
    """Whether changes are known to be later than all of a log, without opening it."""
    source = plan.known.get(log.table)
    if source is None or source.log is None or span[0] is None:
        return False
    return span[0] > source.log.time and log.ends_at(source.log.version)


def _overlapping(added: pa.Table, span: _Span) -> list[str]:
    """Return the files that may have changes of a time span."""
    paths: list[str] = added["path"].to_pylist()
    bounds = [f"{bound}._source_timestamp" for bound in ("min", "max")]
    first, last = span
    if first is None or not set(bounds) <= set(added.column_names):
        return paths
    firsts, lasts = (added[name].cast(pa.timestamp("us")).cast(pa.int64()) for name in bounds)
    # Spark truncates the statistics of timestamps to milliseconds.
    lasts = pc.add(lasts, 1_000)
    apart = pc.or_(pc.greater(firsts, last), pc.less(lasts, first)).fill_null(False)
    return [path for path, is_apart in zip(paths, apart.to_pylist(), strict=True) if not is_apart]


def _span(chunks: Sequence[Chunk]) -> _Span:
    """Return the source timestamps of the first and the last change."""
    spans = []
    for chunk in chunks:
        if "_source_timestamp" not in chunk.rows.column_names:
            return None, None
        times = chunk.rows["_source_timestamp"]
        if times.null_count:
            return None, None
        spans.append(pc.min_max(times.cast(pa.int64())).as_py())
    return min(one["min"] for one in spans), max(one["max"] for one in spans)


def change_plan(pipeline: PipelineConfig, tables: TableCache | None = None) -> ChangeStaging:
    """Return the plan of the next batch, with the logs that runs and replays have made."""
    plan = replace(ChangeStaging.of(pipeline), known=known_logs_with_replays(pipeline, tables))
    plan.require_known_lineages()
    return plan


def _to_error(error: Sequence[str | None]) -> HeadgateError:
    name, *parts = error
    raised: HeadgateError = getattr(errors, str(name))(*parts)
    return raised
