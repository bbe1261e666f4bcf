"""The shop at work: statement after statement, and the files that tell of its changes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from headgate.lab.shop.datastream import FileFormat, FileOptions, write_changes
from headgate.lab.shop.model import DatabaseModel
from headgate.lab.shop.statement import AlterTable, Change, ChangeKind, CreateTable, SourceClock
from headgate.lab.shop.workload import OPENING, statements

_PORTION = 10_000


@dataclass(frozen=True)
class ShopPlan:
    """What to simulate; the same plan gives the same files."""

    landing: Path
    changes: int | None = 10_000
    """How many in all, and those that the last statement makes beyond; None for no end."""
    seed: int = 0
    rate: float | None = None
    """Changes a second; None for as fast as it goes."""
    format: FileFormat = "avro"
    backfill: bool = True
    """Whether the rows from before the opening are read from the tables and not from the log."""
    changes_per_file: int = 1_000
    writers: int = 1
    shuffled: bool = False
    duplicates: float = 0.0

    @property
    def file_options(self) -> FileOptions:
        return FileOptions(
            self.format,
            self.changes_per_file,
            self.writers,
            self.shuffled,
            self.duplicates,
            self.seed,
        )

    @property
    def portion(self) -> int:
        """How many changes are written at a time: a second's, where there is a rate."""
        return _PORTION if self.rate is None else max(1, min(_PORTION, int(self.rate)))


@dataclass
class SimulatedShop:
    """What was written so far."""

    changes: int = 0
    backfilled: int = 0
    """Rows that were read from tables; they are not among the changes."""
    files: int = 0
    schema_changes: int = 0
    seconds: float = 0.0
    kinds: Counter[ChangeKind] = field(default_factory=Counter)
    tables: Counter[str] = field(default_factory=Counter)

    @property
    def rate(self) -> float:
        return self.changes / self.seconds if self.seconds else 0.0

    def add(self, changes: Sequence[Change], files: Sequence[Path]) -> None:
        logged = [change for change in changes if not change.backfill]
        self.changes += len(logged)
        self.backfilled += len(changes) - len(logged)
        self.files += len(files)
        self.kinds.update(change.kind for change in logged)
        self.tables.update(change.table for change in changes)


def simulate_shop(
    plan: ShopPlan,
    model: DatabaseModel | None = None,
    say: Callable[[str], None] = lambda _: None,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[SimulatedShop]:
    """Write portion by portion; each step of the iterator tells how far it is.

    A `model` that is given has the rows of the database as they are after each step.
    """
    model = model or DatabaseModel()
    clock = SourceClock()
    happening = enumerate(statements(plan.seed, clock))
    written = SimulatedShop()
    began = time.perf_counter()
    say("Opening the shop")
    waiting: list[Change] = []
    for number, statement in islice(happening, OPENING):
        waiting += model.apply(statement, clock.at(number))
    if plan.backfill:
        opening = clock.at(OPENING)
        waiting = [row for table in model.tables for row in model.backfill(table, opening)]
        written.add(waiting, write_changes(waiting, plan.landing, plan.file_options))
        waiting = []
    while plan.changes is None or written.changes < plan.changes:
        left = plan.portion
        if plan.changes is not None:
            left = min(left, plan.changes - written.changes)
        while len(waiting) < left:
            number, statement = next(happening)
            waiting += model.apply(statement, clock.at(number))
            written.schema_changes += isinstance(statement, AlterTable | CreateTable)
        written.add(waiting, write_changes(waiting, plan.landing, plan.file_options))
        waiting = []
        if plan.rate is not None:
            ahead = written.changes / plan.rate - (time.perf_counter() - began)
            if ahead > 0:
                sleep(ahead)
        written.seconds = time.perf_counter() - began
        yield written
    written.seconds = time.perf_counter() - began
    yield written
