"""Failures, crashes and restarts in any order: every record ends up in one place, once."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headgate.engine import record_plan
from headgate.engine.batch import BatchLander
from headgate.testing import Crash, FailingCommitter
from headgate.testing.lake import stage_in_process
from tests.engine.games import (
    LARGER,
    PLAIN,
    RETYPED,
    UNKNOWN,
    WIDER,
    GamesLake,
    extent,
    record,
    records,
)
from tests.lake.crashing_ledger import CrashingLedger

LEARNT = 'syntax = "proto3"; message event { int32 n = 1; double more = 9; }'
TABLES = ["silver_a", "silver_b", "quarantine", "bronze"]

kinds = st.tuples(st.sampled_from("ab"), st.sampled_from([PLAIN, WIDER, RETYPED, LARGER, UNKNOWN]))
tables = st.sets(st.sampled_from(TABLES), max_size=2)


class Landing(RuleBasedStateMachine):
    """Runs in which anything may fail, except that a batch always has the same records."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.lake = GamesLake(self.folder, bronze="bronze")
        self.failing = FailingCommitter(self.lake.committer)
        self.lake.committer = self.failing
        self.ledger = CrashingLedger(str(self.lake.path), "ledger", "games")
        self.lake.ledger = self.ledger
        self.lander: BatchLander | None = None
        self.batches: list[list[tuple[str, int]]] = []
        self.landed = 0

    def teardown(self) -> None:
        try:
            self.heal()
            if self.landed < len(self.batches):
                self.land()
            self.lake.start()
            assert self._found() == self._produced()
        finally:
            shutil.rmtree(self.folder)

    @rule(unreadable=tables, refusing=tables, losing_response=tables)
    def fail(self, unreadable: set[str], refusing: set[str], losing_response: set[str]) -> None:
        self.failing.heal()
        self.failing.unreadable |= unreadable
        self.failing.refusing |= refusing
        self.failing.losing_response |= losing_response

    @rule(before=tables, after=tables, ledger=st.booleans())
    def crash(self, before: set[str], after: set[str], ledger: bool) -> None:
        self.failing.crashing_before |= before
        self.failing.crashing_after |= after
        self.ledger.crashing = ledger

    @rule()
    def heal(self) -> None:
        self.failing.heal()
        self.ledger.crashing = False

    @rule(values=st.lists(kinds, min_size=1, max_size=4))
    @precondition(lambda self: self.landed == len(self.batches))
    def produce(self, values: list[tuple[str, int]]) -> None:
        self.batches.append(values)
        self.land()

    @rule()
    @precondition(lambda self: self.landed < len(self.batches))
    def land(self) -> None:
        try:
            self.lander = self.lander or self.lake.start()
            first = sum(len(batch) for batch in self.batches[:-1])
            values = [record(route, first, kind) for route, kind in self.batches[-1]]
            batch = extent(len(self.batches) - 1)
            self.lander.land(batch, stage_in_process(records(values, first)))
            self.landed = len(self.batches)
        except Crash:
            self.restart()

    @rule()
    def restart(self) -> None:
        self.lander = None
        record_plan._decoders.clear()  # they live as long as an executor's process

    @rule()
    def register(self) -> None:
        """An id that was unknown becomes known: the batch under way must not care."""
        self.lake.register("event", LEARNT)

    @invariant()
    def nothing_is_twice(self) -> None:
        assert not self._found() - self._produced()

    def _produced(self) -> Counter[tuple[str, int]]:
        places: Counter[tuple[str, int]] = Counter()
        values = [value for batch in self.batches for value in batch]
        for offset, (route, kind) in enumerate(values):
            if kind == UNKNOWN:
                places["quarantine or its table", offset] += 1
            else:
                places["bronze", offset] += 1
                places[f"silver_{route}", offset] += 1
        return places

    def _found(self) -> Counter[tuple[str, int]]:
        kinds = [kind for batch in self.batches for _, kind in batch]
        places: Counter[tuple[str, int]] = Counter()
        for table, offsets in self.lake.offsets().items():
            for offset in offsets:
                if kinds[offset] != UNKNOWN:
                    places[table, offset] += 1
                elif table != "bronze":
                    places["quarantine or its table", offset] += 1
        return places


TestLanding = Landing.TestCase
TestLanding.settings = settings(deadline=None, max_examples=8, stateful_step_count=15)
