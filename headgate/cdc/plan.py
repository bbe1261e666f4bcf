"""The plan of a batch of change files, which the driver sends to the executors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import pyarrow as pa

from headgate.cdc.source_tables import (
    NEW_LOG,
    KnownSource,
    LogEnd,
    SourceNaming,
    source_in_files,
    statistics_of,
)
from headgate.config import Datastream, Files, PipelineConfig
from headgate.engine.expectations import rules_of
from headgate.engine.follow_up import TableChanged
from headgate.engine.plan import BatchPlan, TableShape
from headgate.engine.quarantine_table import QUARANTINE
from headgate.envelopes.datastream.changes import LOG_COLUMN_NAMES, LOG_COLUMNS, SourceTable
from headgate.errors import CheckpointError
from headgate.lake.names import ChangeTables
from headgate.lake.staged import StagedFile
from headgate.lake.staged_files import staged_path
from headgate.lake.tables import table_url

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
"""Files that were read; an unchanged file is not read again."""


@dataclass(frozen=True, kw_only=True)
class ChangePlan(BatchPlan):
    """How change files are opened, and how their changes are ordered and routed.

    Abstract: `headgate.cdc.stage.ChangeStaging` is the plan that also stages them.
    """

    tables: ChangeTables
    files: Files
    envelope: Datastream
    horizon_seconds: float
    max_file_bytes: int
    known: Mapping[str, KnownSource] = field(default_factory=dict)
    """By change log."""
    waiting: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Paths by table of files that could not be committed yet; their changes must not land
    twice."""
    reused: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Positions, by file, of changes whose UUID another change has."""

    @classmethod
    def of(cls, pipeline: PipelineConfig) -> Self:
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
            self.tables.files: TableShape(FILES, is_compacted=True),
        }

    @property
    def first_columns(self) -> pa.Schema:
        return pa.schema([LOG_COLUMNS.field(name) for name in _FIRST_COLUMNS])

    def table_shape(self, table: str) -> TableShape:
        own = self.own_tables.get(table)
        return own or TableShape(self.first_columns, own_columns=LOG_COLUMN_NAMES)

    @property
    def quarantine(self) -> str:
        return self.tables.quarantine

    @property
    def ledger(self) -> str:
        return self.tables.ledger

    def tables_in_lake(self) -> frozenset[str]:
        return frozenset(self.known)

    def names_of_route(self, route: str) -> Collection[str]:
        return self._naming.names_of_route(route)

    def forget(self) -> None:
        """Do nothing: change files carry their schemas, so none is cached."""

    def with_committed(self, tables: Sequence[TableChanged]) -> Self:
        known = dict(self.known)
        for one in tables:
            if one.files:
                source = replace(source_in_files(one.files), log=self._log_end(one))
                before = known.get(one.table)
                known[one.table] = before.updated(source) if before else source
        return replace(self, known=known)

    def source_of(self, table: str) -> KnownSource | None:
        return self.known.get(table)

    def with_sources(self, tables: Sequence[TableChanged]) -> Self:
        """Return the plan with the sources that another one found in committed files."""
        sources = {
            table.table: table.source for table in tables if isinstance(table.source, KnownSource)
        }
        return replace(self, known={**self.known, **sources})

    def _log_end(self, changed: TableChanged) -> LogEnd | None:
        """Return where a log ends after a commit to it; None if that is not known."""
        source = self.known.get(changed.table)
        before = NEW_LOG if source is None else source.log
        if before is None or changed.version is None:
            return None
        url = table_url(self.lake, changed.table)
        return before.after(map(statistics_of, changed.files), changed.version, url)

    def with_pending(self, files: Iterable[StagedFile]) -> Self:
        paths: dict[str, list[str]] = defaultdict(list)
        for file in files:
            path = staged_path(self.lake, file)
            if path is not None:
                paths[file.table].append(path)
        return replace(self, waiting=paths)

    def tables_of(self, source: SourceTable) -> ChangeTables:
        """Return the names that the source's tables have or will get."""
        return self._naming.tables_of(source)

    @property
    def _naming(self) -> SourceNaming:
        return SourceNaming(self.tables, self.known)

    def log_for(self, source: SourceTable) -> str:
        return self.tables_of(source).log_for(source)

    def merged_names(self, source: SourceTable) -> tuple[str, ...]:
        """Return the name of the source's merged table, if the pipeline has merged tables."""
        merged = self.tables_of(source).merged_for(source)
        return () if merged is None else (merged,)

    def fixed_lineages(self, table: str) -> tuple[str, ...] | None:
        """Return the lineages of a table if they do not depend on its new changes."""
        source = self.known.get(table)
        if source is None or not source.lineages or self.envelope.lineages:
            return None
        return source.lineages

    def lineages_of(self, table: str, found: Sequence[str]) -> tuple[str, ...]:
        """Return the lineages of a table, oldest first; empty if they are not known yet."""
        declared = tuple(self.envelope.lineages)
        if declared and set(found) & set(declared):
            return declared
        source = self.known.get(table)
        return source.lineages if source else ()

    def require_known_lineages(self) -> None:
        """Require that declared lineages only extend those that have ordered landed changes."""
        declared = tuple(self.envelope.lineages)
        for table, source in self.known.items():
            kept = declared[: len(source.lineages)]
            if set(source.lineages) & set(declared) and kept != source.lineages:
                raise CheckpointError(
                    "lineages-changed",
                    f"{table} was ordered by {', '.join(source.lineages)}",
                    hint="put these first in `envelope.datastream.lineages`, in that order; if "
                    "that order is wrong, land the files into an empty lake",
                    where=table,
                )

    def replan(self, files: Sequence[StagedFile]) -> Self | None:
        """Also resolve conflicts over a new log between source tables or lineages.

        The file with the oldest changes decides. Changes that reuse the UUID of another one are
        rejected by the new plan, where their bytes are at hand.
        """
        again = super().replan(files) or self
        found: dict[str, list[StagedFile]] = defaultdict(list)
        for file in files:
            if file.table not in self.own_tables and file.table not in self.known:
                found[file.table].append(file)
        chosen = {
            table: source_in_files([min(staged, key=_first_timestamp)])
            for table, staged in found.items()
            if len({(file.route, file.lineages) for file in staged}) > 1
        }
        if chosen:
            again = replace(again, known={**self.known, **chosen})
        reused = _reused(files)
        if any(set(reused[path]) - set(self.reused.get(path, ())) for path in reused):
            again = replace(again, reused=_union(self.reused, reused))
        return None if again is self else again


def _reused(files: Iterable[StagedFile]) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for file in files:
        found = _union(found, file.reused or {})
    return found


def _union(
    some: Mapping[str, Sequence[int]], others: Mapping[str, Sequence[int]]
) -> dict[str, tuple[int, ...]]:
    return {
        path: tuple(sorted({*some.get(path, ()), *others.get(path, ())}))
        for path in {*some, *others}
    }


def _first_timestamp(file: StagedFile) -> str:
    return str(statistics_of(file).get("minValues", {}).get("_source_timestamp", ""))


_FIRST_COLUMNS = (
    "_uuid",
    "_change_type",
    "_is_deleted",
    "_source_timestamp",
    "_read_method",
    "_primary_keys",
    "_file",
    "_order",
)
"""Columns that every log has from the start, because readers of logs rely on them."""
