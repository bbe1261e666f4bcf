"""Totals of a run, counted from its events."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple

from headgate.config import PipelineConfig
from headgate.engine.events import (
    BatchLanded,
    Ended,
    Event,
    ExpectationsBroken,
    FilesSkipped,
    GoldDerived,
    Idle,
    SchemaChanged,
    Started,
    TablesMerged,
    TableWaits,
)
from headgate.schema.changes import CreateTable

_MAX_NOTICES = 8
_MAX_SINGLE_TABLES = 3
# An idle run reports so several times a second; after a second of silence a batch is being landed.
_IDLE_SECONDS = 1.0


class Notice(NamedTuple):
    """Something worth showing for a while."""

    at: datetime
    subject: str
    message: str


@dataclass
class Tally:
    """Totals of a run; views only read it."""

    pipeline: str
    lake: str
    tables: set[str] = field(default_factory=set)
    """Silver tables in the lake, including those of earlier runs."""
    phase: Literal["starting", "running", "stopped", "done"] = "starting"
    began: float = field(default_factory=time.perf_counter)
    batches: int = 0
    rows: int = 0
    quarantined: Counter[str] = field(default_factory=Counter)
    new_tables: int = 0
    changes: int = 0
    withheld: int = 0
    """Schema changes that the contract blocked."""
    landing_seconds: float = 0.0
    """Time to stage and commit records; deriving and merging are not included."""
    fastest: BatchLanded | None = None
    """The batch with the highest landing rate."""
    broken: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Rows that broke a rule of `expect`, by the rule's name and its `on_fail`."""
    last: BatchLanded | None = None
    merged: int = 0
    """Rows that merges inserted, updated or deleted."""
    last_merge: TablesMerged | None = None
    last_gold: GoldDerived | None = None
    skipped: int = 0
    """Entries of the landing folder that are not read, such as links."""
    waiting: dict[str, TableWaits] = field(default_factory=dict)
    recent: deque[Notice] = field(default_factory=lambda: deque(maxlen=_MAX_NOTICES))
    schema_changes: deque[Notice] = field(default_factory=lambda: deque(maxlen=_MAX_NOTICES))

    stop_asked: Callable[[], bool] = lambda: False
    own_tables: frozenset[str] = frozenset()
    """Bronze and quarantine, which are not counted as tables."""
    _idle_at: float = float("-inf")
    _created: list[SchemaChanged] = field(default_factory=list)

    @classmethod
    def of(cls, pipeline: PipelineConfig, tables: Collection[str] = ()) -> Tally:
        own = frozenset(pipeline.own_tables.values())
        return cls(pipeline.name, pipeline.lake, set(tables), own_tables=own)

    @property
    def state(self) -> str:
        """The state of the run in words."""
        if self.phase == "starting":
            return "starting Spark"
        if self.phase != "running":
            return self.phase
        if self.stop_asked():
            return "stopping after this batch"
        is_idle = time.perf_counter() - self._idle_at < _IDLE_SECONDS
        return Idle().text if is_idle else "landing"

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.began

    @property
    def records(self) -> int:
        return self.rows + self.quarantined.total()

    def take(self, event: Event) -> None:
        """Count an event. A kind that has nothing to count needs no case here."""
        match event:
            case Started():
                self.phase = "running"
            case Idle():
                self._idle_at = time.perf_counter()
            case SchemaChanged():
                self._take_change(event)
            case ExpectationsBroken(rules=rules):
                for one in rules:
                    self.broken[one.rule, one.on_fail] += one.failed
            case FilesSkipped(reasons=reasons):
                self.skipped += len(reasons)
                self.note(*event.notice)
            case TableWaits():
                self.waiting[event.table] = event
            case BatchLanded():
                self._take_batch(event)
            case TablesMerged():
                self.merged += event.inserted + event.updated + event.deleted
                self.last_merge = event
            case GoldDerived():
                self.last_gold = event
            case Ended():
                self.phase = "stopped" if event.stopped else "done"
                self.tables |= event.tables
            case Event(notice=(subject, message)):
                self.note(subject, message)

    def note(self, subject: str, message: str = "") -> None:
        self.recent.append(Notice(datetime.now(), subject, message))

    def is_new_table(self, event: SchemaChanged) -> bool:
        """Whether the event is the first of a route."""
        is_created = isinstance(event.change, CreateTable) and not event.change.is_blocked
        return is_created and event.table not in self.own_tables

    def _take_change(self, event: SchemaChanged) -> None:
        if self.is_new_table(event):
            self.tables.add(event.table)
            self._created.append(event)
        elif event.table not in self.own_tables:
            self.withheld += event.change.is_blocked
            self._note_change(event)

    def _take_batch(self, event: BatchLanded) -> None:
        self._note_new_tables()
        self.batches += 1
        self.rows += event.rows
        self.quarantined.update(event.quarantined)
        self.new_tables += event.new_tables
        self.changes += event.changes
        self.landing_seconds += event.landing_seconds
        if self.fastest is None or _landing_rate(event) > _landing_rate(self.fastest):
            self.fastest = event
        self.last = event
        # Every batch retries pending tables: one that it does not report again has landed.
        self.waiting = {
            table: one for table, one in self.waiting.items() if one.batch == event.batch
        }

    def _note_new_tables(self) -> None:
        """Note the new tables of a batch, as one notice if there are many."""
        created, self._created = self._created, []
        if len(created) > _MAX_SINGLE_TABLES:
            self.note(f"{len(created)} new tables", f"{created[0].table}, {created[1].table}, …")
            return
        for event in created:
            self._note_change(event)

    def _note_change(self, event: SchemaChanged) -> None:
        self.note(*event.notice)
        self.schema_changes.append(self.recent[-1])


def _landing_rate(batch: BatchLanded) -> float:
    return batch.records / batch.landing_seconds if batch.landing_seconds else 0.0
