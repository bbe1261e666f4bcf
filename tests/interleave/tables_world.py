"""Landings, compactions, maintenance and users over one table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import count
from random import Random

import pyarrow as pa

from headgate.config import Contract
from headgate.engine.land_table import BatchMark, TableLanded, land_table
from headgate.engine.plan import TableShape
from headgate.lake.commit import Mark
from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.lake.ledger import Pending
from headgate.lake.parquet import write_parquet
from headgate.lake.staged import StagedFile
from headgate.lake.staged_files import staged_prefix, writer_of
from headgate.schema.changes import TableHistory
from headgate.testing import FailingCommitter
from tests.interleave.maintenance import maintain_one
from tests.interleave.user import User
from tests.interleave.watched import (
    Operation,
    Rows,
    SameRows,
    Version,
    check_definition,
    difference,
    rows_of,
)
from tests.interleave.world import Run, World

TABLE = "t"
_HARMLESS = (
    *("append", "delete", "update", "merge", "overwrite"),
    *("add_column", "set_property", "checkpoint"),
)
_DANGEROUS: Mapping[str, tuple[str, ...]] = {
    "several compactions": ("optimize",),
    "deletion vectors": ("delete_by_vector",),
    "partitioned by a user": ("partition",),
    "recreated": ("recreate",),
    "restored": ("restore",),
}
"""What users do, by the hazard that it is."""
_SHAPE = TableShape(pa.schema([("n", pa.int64()), ("s", pa.string())]))
_FILE_SIZE = 1 << 20


@dataclass
class Landings(Operation):
    """What one pipeline lands, in any number of runs."""

    app: str
    batches: dict[int, Rows] = field(default_factory=dict)
    may_lose: bool = False
    """Whether a user has dropped the table."""
    name: str = "landing"

    def check(self, table: str, before: Version | None, after: Version) -> None:
        """Rows are added with their mark, and only once."""
        rows = before.rows if before else Counter()
        if before is not None:
            check_definition(before, after)
        if self.may_lose and self.app in after.new_marks:
            # A table that is dropped takes staged files with it, and forgets its marks.
            staged = sum(self.batches.values(), Counter())
            assert not rows - after.rows, difference(after.rows, rows)
            assert not (after.rows - rows) - staged, difference(after.rows - rows, staged)
            assert not any(after.rows[row] > 1 for row in staged), "rows twice"
            return
        wanted: Rows = Counter()
        if self.app in after.new_marks:
            marked = after.new_marks[self.app]
            known = before.marks.get(self.app, -1) if before else -1
            for version in range(known + 1, marked + 1):
                wanted += self.batches.get(version, Counter())
        assert after.rows == rows + wanted, difference(after.rows, rows + wanted)


class TablesWorld(World):
    name = "tables"
    hazards = (
        "several compactions",
        "deletion vectors",
        "partitioned by a user",
        "recreated",
        "restored",
        "pending beside maintenance",
    )

    def prepare(self) -> None:
        self._numbers = count(1)
        self._landed: list[tuple[str, int, str | None]] = []
        self._pending: dict[str, tuple[Pending, ...]] = {}
        self._complete: dict[str, int] = {}
        self._landings = {
            app: Landings(app, may_lose=self.focus == "recreated")
            for app in ("headgate:a", "headgate:b")
        }
        first = self._landings["headgate:a"]
        with self.lake.operation("", first):
            for batch in range(self.random.randint(1, 4)):
                self._land_batch(self._committer(), first, batch)
        self._begun = len(first.batches)

    def actors(self) -> Mapping[str, Run]:
        chosen: dict[str, Run] = {
            "landing a": lambda: self._land("headgate:a", self._begun),
            "landing b": lambda: self._land("headgate:b", 0),
        }
        if self.random.random() < 0.3:
            chosen["landing a again"] = lambda: self._land("headgate:a", self._begun)
        is_maintained = self.focus in (
            *("deletion vectors", "restored"),
            "pending beside maintenance",
        )
        several = self.focus == "several compactions"
        maintains = is_maintained or self.random.random() < 0.5
        for number in range(2 if several else self.random.randint(0, 1)):
            if several or not maintains:
                chosen[f"compaction {number}"] = self._compact
        if maintains:
            chosen["maintenance"] = self._maintain
            chosen["time"] = self._let_time_pass
        for number in range(self.random.choice((0, 1, 1, 2)) or bool(self._wanted)):
            kinds = [*self._wanted, *self.random.sample(_HARMLESS, k=3)]
            if self.focus in ("deletion vectors", "restored"):
                kinds += ["checkpoint", *self._wanted]
            user = self.user(tuple(kinds))
            chosen[f"user {number}"] = partial(self._use, user)
        return chosen

    def user(self, kinds: tuple[str, ...]) -> User:
        return User(self, TABLE, kinds)

    @property
    def _wanted(self) -> tuple[str, ...]:
        return _DANGEROUS.get(self.focus or "", ())

    def check(self) -> None:
        """Every batch that was reported as landed is in the table, unless it was replaced."""
        super().check()
        newest = self.lake.newest(TABLE)
        for app, batch, table_id in self._landed:
            if table_id == newest.table_id:
                assert newest.marks.get(app, -1) >= batch, f"batch {batch} of {app} is lost"

    def _committer(self) -> DeltaRsCommitter:
        return DeltaRsCommitter(str(self.lake.path))

    def _use(self, user: User) -> None:
        for _ in range(self.random.randint(1, 4)):
            user.act()

    def _let_time_pass(self) -> None:
        for _ in range(3):
            self.scheduler.step("waits for a day")
            self._let_a_day_pass()

    def _let_a_day_pass(self) -> None:
        self.scheduler.note("days pass")
        self.lake.let_days_pass()

    def _compact(self) -> None:
        committer = self._committer()
        for _ in range(2):
            with self.operation(SameRows("compaction")):
                committer.compact(TABLE, _FILE_SIZE)

    def _maintain(self) -> None:
        committer = self._committer()
        for _ in range(3):
            if self.random.random() < 0.5:
                self._let_a_day_pass()
            with self.operation(SameRows("maintenance")):
                maintain_one(
                    committer,
                    TABLE,
                    keep=timedelta(days=self.random.choice((1, 100))),
                    landed=self._batches_landed(),
                    pending={
                        f"{TABLE}/{pending.file.path}"
                        for files in self._pending.values()
                        for pending in files
                    },
                    compacts=self.random.random() < 0.5,
                )

    def _batches_landed(self) -> dict[str, int]:
        """Return the newest complete batches, by the writer of their files."""
        return {writer_of(app): batch for app, batch in self._complete.items()}

    def _land(self, app: str, first: int) -> None:
        landings = self._landings[app]
        committer = FailingCommitter(self._committer())
        most = 5 if self.focus == "pending beside maintenance" else 3
        for batch in range(first, first + self.random.randint(1, most)):
            with self.operation(landings):
                self._land_batch(committer, landings, batch)
        committer.heal()

    def _land_batch(
        self, committer: DeltaRsCommitter | FailingCommitter, landings: Landings, batch: int
    ) -> None:
        rows = list(self._rows(landings, batch))
        landings.batches[batch] = sum(map(rows_of, rows), Counter())
        files = [self._stage(landings.app, batch, content) for content in rows]
        # A run begins a batch only once those before are complete, with what is pending of them.
        noted = self._pending.get(landings.app, ())
        pending = tuple(file for file in noted if file.version < batch)
        began = self.lake.newest(TABLE).table_id if TABLE in self.lake.tables else None
        if isinstance(committer, FailingCommitter):
            committer.heal()
            if self.random.random() < 0.5 and self.focus == "pending beside maintenance":
                committer.refusing.add(TABLE)
        outcome = land_table(
            committer,
            str(self.lake.path),
            TABLE,
            _SHAPE,
            files,
            pending,
            BatchMark(Mark(landings.app, batch)),
            TableHistory(),
            Contract(),
        )
        if isinstance(outcome, TableLanded):
            self.lake.observe(self.scheduler.actor or "")
            newest = self.lake.newest(TABLE)
            # Who drops a table right after the commit takes the batch with it.
            if newest.table_id == began or landings.app in newest.marks:
                self._landed.append((landings.app, batch, newest.table_id))
            self._pending[landings.app] = tuple(file for file in noted if file not in pending)
        else:
            self.scheduler.note(f"pending: {outcome.error}")
            self._pending[landings.app] = outcome.files
        self._complete[landings.app] = max(batch, self._complete.get(landings.app, -1))

    def _rows(self, landings: Landings, batch: int) -> Iterator[pa.Table]:
        """Yield the rows of each file of a batch; a second run stages the same rows again."""
        known = Random(f"{landings.app} {batch}")
        first = 1000 * (1 + batch) + (500 if landings.app.endswith("b") else 0)
        for file in range(known.randint(1, 2)):
            numbers = range(first + 20 * file, first + 20 * file + known.randint(1, 3))
            columns = {"n": pa.array(numbers, pa.int64()), "s": [landings.app] * len(numbers)}
            kind = known.choice((None, None, "narrow", "narrow", "wide", "new"))
            if kind == "new":
                columns[f"c{batch}"] = ["x"] * len(numbers)
            elif kind is not None:
                integers = pa.int32() if kind == "narrow" else pa.int64()
                columns["w"] = pa.array([7] * len(numbers), integers)
            yield pa.table(columns)

    def _stage(self, app: str, batch: int, rows: pa.Table) -> StagedFile:
        name = f"{staged_prefix(writer_of(app), batch)}{next(self._numbers)}.parquet"
        return write_parquet(str(self.lake.path), TABLE, name, rows)
