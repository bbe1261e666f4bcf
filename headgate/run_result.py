"""What a run landed, in one value."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.amounts import counted, duration, number, rate
from headgate.config import PipelineConfig
from headgate.notebook import ResultView, cell

if TYPE_CHECKING:
    from headgate.engine.events import Ended, Event, Listener, SchemaChanged
    from headgate.inspect.status import GoldTable, PendingTable


@dataclass(frozen=True)
class RunResult(ResultView):
    """What a run landed."""

    pipeline: str
    batches: int
    rows: int
    """Rows landed in silver tables or change logs."""
    quarantined: Mapping[str, int]
    """Number of records by reason."""
    tables: tuple[str, ...]
    """Tables that records or changes land in, including those of earlier runs."""
    new_tables: tuple[str, ...]
    schema_changes: tuple[SchemaChanged, ...]
    """Changes of existing tables, and changes that the contract blocked."""
    seconds: float
    landing_seconds: float
    """Time to stage and commit records; starting Spark, deriving and merging are not included."""
    stopped: bool
    """Whether a signal or `stop` ended the run."""
    pending: tuple[PendingTable, ...] = ()
    """Tables that could not be committed; the next run retries."""
    not_derived: tuple[GoldTable, ...] = ()
    """Derived tables that could not be updated; the next run retries."""

    @property
    def records(self) -> int:
        """Records read: landed or quarantined."""
        return self.rows + sum(self.quarantined.values())

    @property
    def ok(self) -> bool:
        """Whether every table is up to date."""
        return not (self.pending or self.not_derived)

    def __str__(self) -> str:
        how = "stopped" if self.stopped else "done"
        if not self.batches:
            first = f"{self.pipeline} {how}: nothing new to land"
        else:
            first = (
                f"{self.pipeline} {how}: {counted(self.records, 'record')} in "
                f"{counted(self.batches, 'batch', 'batches')}, landed in "
                f"{duration(self.landing_seconds)} ({rate(self.records, self.landing_seconds)})"
            )
        created = f", {number(len(self.new_tables))} of them new" if self.new_tables else ""
        lines = [first, f"  {counted(self.rows, 'row')}"]
        lines[-1] += f"; the lake has {counted(len(self.tables), 'table')}{created}"
        if self.schema_changes:
            lines.append(f"  {counted(len(self.schema_changes), 'schema change')}")
        if self.quarantined:
            reasons = ", ".join(f"{name} {number(n)}" for name, n in self.quarantined.items())
            lines.append(f"  {number(sum(self.quarantined.values()))} quarantined: {reasons}")
        lines += [
            f"  pending: {one.table} with {counted(one.rows, 'row')}: {cell(one.error)}"
            for one in self.pending
        ]
        lines += [f"  not derived: {one.table}: {cell(one.error)}" for one in self.not_derived]
        return "\n".join(lines)


class RunTally:
    """Adds up the events of a run, and passes them on."""

    def __init__(self, pipeline: PipelineConfig, listener: Listener | None) -> None:
        self._pipeline = pipeline
        self._listener = listener
        self._began = time.perf_counter()
        self._landing_seconds = 0.0
        self._quarantined: Counter[str] = Counter()
        self._new_tables: list[str] = []
        self._changes: list[SchemaChanged] = []

    def take(self, event: Event) -> None:
        from headgate.engine.events import BatchLanded, SchemaChanged
        from headgate.schema.changes import CreateTable

        own = self._pipeline.own_tables.values()
        if isinstance(event, BatchLanded):
            self._landing_seconds += event.landing_seconds
            self._quarantined.update(event.quarantined)
        elif isinstance(event, SchemaChanged) and event.table not in own:
            if isinstance(event.change, CreateTable) and not event.change.is_blocked:
                self._new_tables.append(event.table)
            else:
                self._changes.append(event)
        if self._listener is not None:
            self._listener(event)

    def result(self, ended: Ended) -> RunResult:
        from headgate.inspect.ledger import open_ledger
        from headgate.inspect.status import pending_tables, read_gold

        pipeline, ledger = self._pipeline, open_ledger(self._pipeline)
        gold = read_gold(pipeline, ledger) if pipeline.gold else ()
        return RunResult(
            pipeline=pipeline.name,
            batches=ended.batches,
            rows=ended.rows,
            quarantined=dict(self._quarantined.most_common()),
            tables=tuple(sorted(ended.tables)),
            new_tables=tuple(self._new_tables),
            schema_changes=tuple(self._changes),
            seconds=time.perf_counter() - self._began,
            landing_seconds=self._landing_seconds,
            stopped=ended.stopped,
            pending=pending_tables(ledger.stream),
            not_derived=tuple(one for one in gold if one.error is not None),
        )
