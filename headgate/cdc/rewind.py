"""Write a source table as of a timestamp or a position of its log into a new table."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from headgate.cdc.as_of import (
    TIME,
    Cutoff,
    in_columns,
    key_of_log,
    rows_as_of,
    rows_as_of_with_spark,
)
from headgate.cdc.change_log import ChangeLog
from headgate.cdc.key import merged_columns
from headgate.cdc.merge_table import MAX_FOLD_BYTES
from headgate.cdc.source_tables import SourceTableNames, find_source, known_sources
from headgate.config import PipelineConfig
from headgate.engine.session import pipeline_session
from headgate.errors import LandingError, UsageError, shown
from headgate.lake.choose_committer import choose_committer
from headgate.lake.commit import Commit, Engine, commit_rows
from headgate.lake.snapshot import Snapshot
from headgate.lake.spark import SparkCommitter
from headgate.lake.tables import TableError, table_url

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_]{0,200}")


@dataclass(frozen=True)
class Rewound:
    """A table that rewind created."""

    table: str
    source: str
    log: str
    log_version: int
    timestamp: datetime | None
    position: str | None
    key: tuple[str, ...]
    """Empty for a source table without a key; the rows are then all changes up to the cutoff."""
    rows: int
    engine: Engine
    begins: datetime | None = None
    """First source timestamp of the log, if that is after `timestamp`."""
    newest: datetime | None = None
    """Last source timestamp of the log, if that is before `timestamp`."""


def rewind(
    pipeline: PipelineConfig,
    table: str,
    until: str,
    into: str | None = None,
    *,
    spark: Callable[[], SparkSession] | None = None,
    spark_above: int = MAX_FOLD_BYTES,
) -> Rewound:
    """Create a table with the rows as of `until`: a timestamp or a position, as text."""
    sources = known_sources(pipeline)
    source = find_source(sources, table)
    cutoff = Cutoff.parse(until, source.known.lineages)
    position = None if cutoff.timestamp else until.strip()
    name = into or f"{source.merged or source.log}_at_{_name_suffix(cutoff.timestamp, until)}"
    _require_new(pipeline, sources, name)
    log = ChangeLog.open(pipeline.lake, source.log)
    if log is None:
        raise LandingError(
            "table-unknown", f"the change log {source.log} no longer exists", where=pipeline.lake
        )
    key = key_of_log(log, source.key, cutoff)
    columns = merged_columns(log.schema, key, pipeline.merge.metadata)
    when = position or timestamp_text(cutoff.timestamp)
    description = (
        f"{source.name} as of {when}: headgate rewind of version {log.version} of {source.log}"
    )
    session = spark or (lambda: pipeline_session(pipeline))
    committer = choose_committer(pipeline.commit, session, pipeline.lake)
    try:
        if log.bytes > spark_above:
            committer = by_spark = SparkCommitter(session, pipeline.lake)
            found = rows_as_of_with_spark(session(), log, key, cutoff)
            commit = Commit(name, columns, (), mode="create", description=description)
            by_spark.commit(commit, in_columns(found, columns))
        else:
            rows = rows_as_of(log, key, cutoff).select(columns.names).cast(columns)
            commit_rows(committer, name, rows, mode="create", description=description)
    except TableError as error:
        if "already exists" in str(error):
            raise _already_exists(pipeline, name) from None
        raise
    created = Snapshot.open(pipeline.lake, name)
    assert created is not None
    row_count = created.count()
    return Rewound(
        name,
        source.name,
        source.log,
        log.version,
        cutoff.timestamp,
        position,
        key.columns,
        row_count,
        committer.engine(name),
        begins=None if row_count else _first_after(cutoff.timestamp, log),
        newest=_newest_before(cutoff.timestamp, source.known.newest),
    )


def timestamp_text(timestamp: datetime | None) -> str:
    """Format as `2026-11-01 12:00:00 UTC`, with fractional seconds if there are any."""
    return f"{timestamp.replace(tzinfo=None).isoformat(' ')} UTC" if timestamp else ""


def _name_suffix(timestamp: datetime | None, position: str) -> str:
    if timestamp is None:
        return re.sub(r"[^a-z0-9]+", "_", position.strip().lower()).strip("_")
    return f"{timestamp:%Y%m%d_%H%M%S}" + (f"_{timestamp:%f}" if timestamp.microsecond else "")


def _require_new(pipeline: PipelineConfig, sources: Sequence[SourceTableNames], name: str) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(
            "bad-argument",
            f"{shown(name)} is not a valid table name",
            hint="use letters, digits and `_`: --into NAME",
        )
    taken = {table for source in sources for table in source.in_lake} | {
        *pipeline.own_tables.values()
    }
    if name in taken or Snapshot.open(pipeline.lake, name) is not None:
        raise _already_exists(pipeline, name)


def _already_exists(pipeline: PipelineConfig, name: str) -> UsageError:
    return UsageError(
        "already-exists",
        f"table {name} already exists, and rewind only creates new tables",
        hint="choose another name: --into NAME",
        where=table_url(pipeline.lake, name),
    )


def _first_after(timestamp: datetime | None, log: ChangeLog) -> datetime | None:
    """Return the first source timestamp of the log, if that is after `timestamp`."""
    if timestamp is None:
        return None
    all_first = (pc.min(portion[TIME]).as_py() for portion in log.portions([TIME]))
    first = min((time for time in all_first if time is not None), default=None)
    return first if first is not None and first > timestamp else None


def _newest_before(timestamp: datetime | None, newest: datetime | None) -> datetime | None:
    return newest if timestamp and newest and newest < timestamp else None
