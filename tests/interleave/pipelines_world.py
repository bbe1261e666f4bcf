"""Whole pipelines over shared tables: runs, replays of the quarantine, and maintenance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from unittest.mock import patch

from headgate.engine import follow_up
from headgate.engine.events import FilesLost
from headgate.lake import ledger
from headgate.lake.ledger_entries import Kind
from headgate.lake.ledger_snapshot import LedgerSnapshot
from headgate.testing import FailingCommitter
from tests.engine.games import LARGER, PLAIN, UNKNOWN, WIDER, GamesLake, record
from tests.interleave.user import User
from tests.interleave.watched import Operation, Row, SameRows, Version
from tests.interleave.world import Run, World
from tests.quarantine.replaying import learn, replay

ROUTES = ("chess", "go")


def number_of(row: Row) -> int:
    """Return the number of a record, which another column has if a type does not fit."""
    (number,) = {value for name, value in row if name.split("__")[0] == "n"}
    return int(number)


@dataclass
class Runs(Operation):
    """Runs of a pipeline: records land once, each with a mark."""

    sent: Counter[int]
    name: str = "run"

    def check(self, table: str, before: Version | None, after: Version) -> None:
        if not table.startswith("silver_"):
            return
        rows = before.rows if before else Counter()
        assert not rows - after.rows, f"rows are gone: {rows - after.rows}"
        numbers = [number_of(row) for row in (after.rows - rows).elements()]
        assert not numbers or after.new_marks, f"{numbers} without a mark"
        landed = Counter(map(number_of, after.rows.elements()))
        twice = [number for number in numbers if landed[number] > 1]
        assert not twice, f"{twice} landed twice"
        assert all(self.sent[number] for number in numbers), f"{numbers} were never sent"


class PipelinesWorld(World):
    name = "pipelines"
    hazards = (
        "several compactions",
        "pending beside maintenance",
        "maintenance by another pipeline",
        "deletion vectors",
    )

    def prepare(self) -> None:
        self._numbers = count(1)
        self._runs = Runs(Counter())
        self._numbers_by_value: dict[bytes, int] = {}
        self._reported: dict[int, str] = {}
        """Records of batches that have landed, and their routes."""
        self._lakes = {name: self._open(name) for name in ("a", "b")}
        self._opened = [*self._lakes.values()]
        with self.lake.operation("", self._runs):
            for name in self._lakes:
                self._land_batch(self._lakes[name], PLAIN)
            if self.focus in ("pending beside maintenance", "maintenance by another pipeline"):
                self._land_batch(self._lakes["b"], PLAIN, is_pending=True)

    def run(self) -> None:
        every = 1 if self.focus == "several compactions" else ledger._COMPACTED_EVERY
        with (
            patch.object(follow_up, "_MAX_REST", 0.0),
            patch.object(ledger, "_COMPACTED_EVERY", every),
        ):
            super().run()

    def actors(self) -> Mapping[str, Run]:
        chosen: dict[str, Run] = {
            "run a": lambda: self._run("a", self.random.randint(1, 2)),
            "run b": lambda: self._run("b", self.random.randint(1, 2)),
        }
        if self.focus == "maintenance by another pipeline" and self.random.random() < 0.7:
            del chosen["run b"]  # its files wait for longer
        if self.random.random() < 0.3:
            chosen["run a again"] = lambda: self._run("a", 1)
        if self.random.random() < 0.4:
            chosen["replay"] = self._replay
        if self.focus in ("pending beside maintenance", "deletion vectors"):
            chosen["maintenance of b"] = lambda: self._maintain("b")
        if self.focus in ("several compactions", "maintenance by another pipeline"):
            chosen["maintenance of a"] = lambda: self._maintain("a")
        if self.random.random() < 0.4 or self.focus == "deletion vectors":
            kinds = ["set_property", "checkpoint"]
            kinds += ["delete_by_vector"] * 2 * (self.focus == "deletion vectors")
            user = User(self, "silver_chess", tuple(kinds), "n", "name")
            chosen["user"] = lambda: self._use(user)
        return chosen

    def finish(self) -> None:
        """Land whatever is left, in a run of each pipeline."""
        super().finish()
        with self.lake.operation("", self._runs):
            for name in self._lakes:
                lake = self._open(name)
                self._opened.append(lake)
                lake.run()

    def check(self) -> None:
        super().check()
        lost = [
            event for lake in self._opened for event in lake.events if isinstance(event, FilesLost)
        ]
        assert not lost, f"{lost}"
        landed: Counter[int] = Counter()
        for table in self._silver:
            rows = self.lake.newest(table).rows
            landed.update(map(number_of, rows.elements()))
        if self.focus == "deletion vectors":
            return
        held = self._held()
        for number in self._reported:
            places = landed[number] + held[number]
            assert places == 1, f"record {number} is at {places} places"
        self._check_ledger()

    @property
    def _silver(self) -> list[str]:
        return [name for name in self.lake.tables if name.startswith("silver_")]

    def _held(self) -> Counter[int]:
        """Return the records that are in quarantine."""
        name = self._lakes["a"].pipeline.quarantine_table
        if name not in self.lake.tables:
            return Counter()
        rows = map(dict, self.lake.newest(name).rows.elements())
        return Counter(
            self._numbers_by_value[row["value"]] for row in rows if row["state"] == "open"
        )

    def _check_ledger(self) -> None:
        counted: Counter[str] = Counter()
        for name, lake in self._lakes.items():
            snapshot = LedgerSnapshot.open_all(str(lake.path), lake.pipeline.ledger, name)
            for table, totals in snapshot.tables(Kind.TABLE).items():
                counted[table] += totals.rows
        for table in self._silver:
            rows = self.lake.newest(table).rows.total()
            assert counted[table] == rows, f"the ledger has {counted[table]} of {rows} of {table}"

    def _open(self, name: str) -> GamesLake:
        return GamesLake(self.lake.path.parent, name=name, commit="delta-rs")

    def _run(self, name: str, batches: int) -> None:
        lake = self._open(name)
        self._opened.append(lake)
        for _ in range(batches):
            schema = self.random.choice((PLAIN, PLAIN, WIDER, LARGER, UNKNOWN))
            with self.operation(self._runs):
                self._land_batch(lake, schema)

    def _land_batch(self, lake: GamesLake, schema: int, is_pending: bool = False) -> None:
        sent = {next(self._numbers): self.random.choice(ROUTES) for _ in range(3)}
        if is_pending:
            sent = dict.fromkeys(sent, "chess")
            lake.committer = FailingCommitter(lake.committer, refusing={"silver_chess"})
        self._runs.sent.update(sent.keys())
        values = {record(route, number, schema): number for number, route in sent.items()}
        self._numbers_by_value |= values
        lake.land([*values])
        self._reported |= sent
        if isinstance(lake.committer, FailingCommitter):
            lake.committer = lake.committer.inner

    def _replay(self) -> None:
        lake = self._open("a")
        with self.operation(Runs(self._runs.sent, "replay")):
            learn(lake)
            replay(lake)

    def _maintain(self, name: str) -> None:
        lake = self._open(name)
        for _ in range(2):
            self.scheduler.note("days pass")
            self.lake.let_days_pass()
            with self.operation(SameRows("maintenance")):
                for done in lake.pipeline.run_maintenance():
                    self.scheduler.note(f"maintained: {done}"[:150])

    def _use(self, user: User) -> None:
        for _ in range(self.random.randint(1, 3)):
            user.act()
