"""What a run has done so far, counted from its events."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple

from headgate.config import Pipeline
from headgate.engine.events import (
    BatchLanded,
    Ended,
    Event,
    ExpectationsBroken,
    FilesWait,
    GoldDerived,
    GoldFailed,
    Idle,
    MergeFailed,
    SchemaChanged,
    Started,
    TablesMerged,
    TableWaits,
    WithoutKey,
)
from headgate.schema.changes import CreateTable

_MOST_RECENT = 8
_FEW = 3
# An idle run says so several times a second; once it is silent, a batch is under way.
_IDLE_LASTS = 1.0


class Happened(NamedTuple):
    """Something worth showing for a while."""

    at: datetime
    what: str
    detail: str


@dataclass
class Tally:
    """Counts events; views only look at it."""

    pipeline: str
    lake: str
    tables: set[str] = field(default_factory=set)
    """Silver tables in the lake, those of earlier runs included."""
    phase: Literal["starting", "running", "stopped", "done"] = "starting"
    began: float = field(default_factory=time.perf_counter)
    batches: int = 0
    rows: int = 0
    quarantined: Counter[str] = field(default_factory=Counter)
    new_tables: int = 0
    changes: int = 0
    withheld: int = 0
    """Changes that the contract kept out of their tables."""
    landing_seconds: float = 0.0
    """Time to stage and commit records; deriving and merging are not included."""
    fastest: BatchLanded | None = None
    """The batch with the highest landing rate."""
    broken: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Rows that broke a rule of `expect`, by its name and what is done about them."""
    last: BatchLanded | None = None
    merged: int = 0
    """Rows that merges put, changed or took away."""
    last_merge: TablesMerged | None = None
    last_gold: GoldDerived | None = None
    waiting: dict[str, TableWaits] = field(default_factory=dict)
    recent: deque[Happened] = field(default_factory=lambda: deque(maxlen=_MOST_RECENT))
    """What happened last, schema changes and notes."""
    schema_changes: deque[Happened] = field(default_factory=lambda: deque(maxlen=_MOST_RECENT))

    stop_asked: Callable[[], bool] = lambda: False
    own_tables: frozenset[str] = frozenset()
    """Bronze and quarantine, which are not counted among the tables."""
    _idle_at: float = float("-inf")
    _new: list[SchemaChanged] = field(default_factory=list)

    @classmethod
    def of(cls, pipeline: Pipeline, tables: Collection[str] = ()) -> Tally:
        own = frozenset(pipeline.own_tables.values())
        return cls(pipeline.name, pipeline.lake, set(tables), own_tables=own)

    @property
    def state(self) -> str:
        """How it stands, in words."""
        if self.phase == "starting":
            return "starting Spark"
        if self.phase != "running":
            return self.phase
        if self.stop_asked():
            return "stopping: the batch is finished first"
        is_idle = time.perf_counter() - self._idle_at < _IDLE_LASTS
        return "idle: caught up with the source" if is_idle else "landing"

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.began

    @property
    def records(self) -> int:
        return self.rows + self.quarantined.total()

    def take(self, event: Event) -> None:
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
            case TableWaits():
                self.waiting[event.table] = event
            case BatchLanded():
                self._take_batch(event)
            case TablesMerged():
                self.merged += event.inserted + event.updated + event.deleted
                self.last_merge = event
            case MergeFailed(table=table, error=error):
                self.note(table, f"not merged, tried again with the next merge: {error}")
            case GoldDerived():
                self.last_gold = event
            case GoldFailed(table=table, error=error):
                self.note(table, f"not derived, tried again with the next batch: {error}")
            case WithoutKey(table=table):
                self.note(table, event.told)
            case FilesWait(paths=paths):
                self.note(f"{len(paths)} unfinished", paths[0])
            case Ended():
                self.phase = "stopped" if event.stopped else "done"
                self.tables |= event.tables

    def note(self, what: str, detail: str = "") -> None:
        self.recent.append(Happened(datetime.now(), what, detail))

    def is_new_table(self, event: SchemaChanged) -> bool:
        """Whether a route was seen for the first time."""
        is_made = isinstance(event.change, CreateTable) and not event.change.is_blocked
        return is_made and event.table not in self.own_tables

    def _take_change(self, event: SchemaChanged) -> None:
        if self.is_new_table(event):
            self.tables.add(event.table)
            self._new.append(event)
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
        # Every batch tries again what waits: what it does not name anew has landed.
        self.waiting = {
            table: one for table, one in self.waiting.items() if one.batch == event.batch
        }

    def _note_new_tables(self) -> None:
        """Many new tables at once are one thing that happened, not many."""
        new, self._new = self._new, []
        if len(new) > _FEW:
            self.note(f"{len(new)} new tables", f"{new[0].table}, {new[1].table}, …")
            return
        for event in new:
            self._note_change(event)

    def _note_change(self, event: SchemaChanged) -> None:
        self.note(event.table, event.change.summary)
        self.schema_changes.append(self.recent[-1])


def _landing_rate(batch: BatchLanded) -> float:
    return batch.records / batch.landing_seconds if batch.landing_seconds else 0.0
