"""What the driver tells the executors about a batch of change files."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from headgate.cdc.chunk import CHUNK, CHUNK_DDL
from headgate.cdc.known_source import KnownSource, known_by, source_of
from headgate.config import Datastream, Files, Pipeline
from headgate.engine.expectations import rules_of
from headgate.engine.plan import BatchPlan, TableShape
from headgate.engine.quarantine_table import QUARANTINE
from headgate.engine.task_results import RESULT_DDL
from headgate.envelopes.datastream.changes import LOG_COLUMNS, SourceTable
from headgate.errors import CheckpointError
from headgate.lake.names import ChangeTables, pattern_name
from headgate.lake.staged import StagedFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FILES = pa.schema(
    [
        pa.field("path", pa.string()),
        pa.field("size", pa.int64()),
        pa.field("modified", pa.int64()),
        pa.field("changes", pa.int64()),
        pa.field("rejected", pa.int64()),
        pa.field("left_out", pa.int64()),
        pa.field("batch", pa.int64()),
    ]
)
"""The files that were read: one that is here as it is now is not read again."""


@dataclass(frozen=True, kw_only=True)
class ChangePlan(BatchPlan):
    """How change files are opened, ordered and told apart."""

    tables: ChangeTables
    files: Files
    envelope: Datastream
    horizon_seconds: float
    max_file_bytes: int
    known: Mapping[str, KnownSource] = field(default_factory=dict)
    """By change log."""
    waiting: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Files of logs that could not be committed yet: their changes are not to come twice."""

    @classmethod
    def of(cls, pipeline: Pipeline) -> ChangePlan:
        return cls(
            lake=pipeline.lake,
            tables=ChangeTables.of(pipeline),
            files=pipeline.change_files,
            envelope=pipeline.datastream,
            horizon_seconds=pipeline.merge.horizon.total_seconds(),
            max_file_bytes=int(pipeline.max_file_bytes),
            max_tables=pipeline.max_tables,
            contract=pipeline.contract,
            expect=rules_of(pipeline.expect),
        )

    @property
    def own_tables(self) -> Mapping[str, TableShape]:
        return {
            self.tables.quarantine: TableShape(QUARANTINE),
            self.tables.files: TableShape(FILES),
        }

    @property
    def first_columns(self) -> pa.Schema:
        return pa.schema([LOG_COLUMNS.field(name) for name in _ALWAYS])

    @property
    def quarantine(self) -> str:
        return self.tables.quarantine

    @property
    def ledger(self) -> str:
        return self.tables.ledger

    def tables_in_lake(self) -> frozenset[str]:
        return frozenset(self.known)

    def names_of_route(self, route: str) -> Collection[str]:
        source = source_of(route)
        tables = self.tables_of(source)
        made = (
            tables.log_for(source),
            tables.merged_for(source),
            tables.history_for(source),
            pattern_name(source),
            source_text(source),
        )
        return frozenset(name for name in made if name is not None)

    def forget(self) -> None:
        """Change files bring their schemas along: there is nothing to ask anew."""

    def with_committed(self, files: Sequence[StagedFile]) -> Self:
        found: dict[str, list[StagedFile]] = defaultdict(list)
        for file in files:
            if file.table not in self.own_tables:
                found[file.table].append(file)
        known = dict(self.known)
        for table, mine in found.items():
            learnt = known_by(mine)
            known[table] = known[table].joined(learnt) if table in known else learnt
        return replace(self, known=known)

    def with_pending(self, files: Iterable[StagedFile]) -> Self:
        paths: dict[str, list[str]] = defaultdict(list)
        for file in files:
            paths[file.table].append(file.path)
        return replace(self, waiting=paths)

    def tables_of(self, source: SourceTable) -> ChangeTables:
        """The names that the source's tables have or get: plain ones, unless others have them."""
        owner = self.known.get(self.tables.log_for(source))
        return self.tables if owner is None or owner.source == source else self.tables.apart

    def log_for(self, source: SourceTable) -> str:
        return self.tables_of(source).log_for(source)

    def merged_names(self, source: SourceTable) -> tuple[str, ...]:
        """The table of the source's current rows, where there is one."""
        merged = self.tables_of(source).merged_for(source)
        return () if merged is None else (merged,)

    def settled_lineages(self, table: str) -> tuple[str, ...] | None:
        """Those that the table follows whatever comes; None where that depends on the changes."""
        known = self.known.get(table)
        return known.lineages if known and known.lineages and not self.envelope.lineages else None

    def lineages_of(self, table: str, found: Sequence[str]) -> tuple[str, ...]:
        """In the order in which they took over; none where nothing is known of them yet."""
        declared = tuple(self.envelope.lineages)
        if declared and set(found) & set(declared):
            return declared
        known = self.known.get(table)
        return known.lineages if known else ()

    def require_known_lineages(self) -> None:
        """What has landed was ordered by the lineages of then: a list may only grow at its end."""
        declared = tuple(self.envelope.lineages)
        for table, known in self.known.items():
            kept = declared[: len(known.lineages)]
            if set(known.lineages) & set(declared) and kept != known.lineages:
                raise CheckpointError(
                    "lineages-changed",
                    f"{table} was ordered by {', '.join(known.lineages)}",
                    hint="put these first in `envelope.datastream.lineages`, in that order; if "
                    "that order is wrong, land the files into an empty lake",
                    where=table,
                )

    def replan(self, files: Sequence[StagedFile]) -> Self | None:
        """Also where files of different source tables, or of different lineages, would share a
        new log: the one whose changes are the oldest has it."""
        again = super().replan(files) or self
        found: dict[str, list[StagedFile]] = defaultdict(list)
        for file in files:
            if file.table not in self.own_tables and file.table not in self.known:
                found[file.table].append(file)
        chosen = {
            table: known_by([min(mine, key=_first_moment)])
            for table, mine in found.items()
            if len({(file.route, file.lineages) for file in mine}) > 1
        }
        if chosen:
            again = replace(again, known={**self.known, **chosen})
        return None if again is self else again

    def job(self, rows: DataFrame) -> DataFrame:
        """Open files where they are, then bring all rows of a table into one task."""
        from headgate.cdc.open import open_changes
        from headgate.cdc.stage import stage_changes

        opened = rows.mapInArrow(partial(open_changes, self), CHUNK_DDL)
        cores = rows.sparkSession.sparkContext.defaultParallelism
        together = opened.repartition(cores, "table").sortWithinPartitions("table")
        return together.mapInArrow(partial(stage_changes, self), RESULT_DDL)

    def stage(self, records: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from headgate.cdc.open import open_changes
        from headgate.cdc.stage import stage_changes

        opened = pa.Table.from_batches(open_changes(self, records), CHUNK)
        return stage_changes(self, opened.sort_by("table").to_batches())


def source_text(source: SourceTable) -> str:
    """A source table as people write it, with its schema where it has a database too."""
    return ".".join(part for part in (source.database, source.schema, source.table) if part)


def _first_moment(file: StagedFile) -> str:
    return str(json.loads(file.statistics).get("minValues", {}).get("_source_timestamp", ""))


_ALWAYS = (
    "_uuid",
    "_change_type",
    "_is_deleted",
    "_source_timestamp",
    "_read_method",
    "_primary_keys",
    "_file",
    "_order",
)
"""Columns of every log, from the start: readers of logs count on them."""
