"""Failures, crashes and restarts in any order: every record ends up in one place, once."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headgate.land.land_batch import BatchLander
from headgate.route.table_names import TableNames

from .failing_committer import Crash, CrashingLedger, FailingCommitter
from .in_process import PLAIN, RETYPED, UNKNOWN, WIDER, Pipeline, extent, record, records, staged_by

NAMES = TableNames("silver_{route}", "quarantine", "ledger", "bronze")
TABLES = ["silver_a", "silver_b", "quarantine", "bronze"]

kinds = st.tuples(st.sampled_from("ab"), st.sampled_from([PLAIN, WIDER, RETYPED, UNKNOWN]))
tables = st.sets(st.sampled_from(TABLES), max_size=2)


class Landing(RuleBasedStateMachine):
    """What a source gives is fixed once a batch is begun; all else may go wrong."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.pipeline = Pipeline(self.folder, NAMES)
        self.failing = FailingCommitter(self.pipeline.committer)
        self.pipeline.committer = self.failing
        self.ledger = CrashingLedger(str(self.pipeline.lake), "ledger", "games")
        self.pipeline.ledger = self.ledger
        self.lander: BatchLander | None = None
        self.batches: list[list[tuple[str, int]]] = []
        self.landed = 0

    def teardown(self) -> None:
        try:
            self.heal()
            if self.landed < len(self.batches):
                self.land()
            self.pipeline.run()
            assert self._found() == self._produced()
        finally:
            shutil.rmtree(self.folder)

    @rule(unreadable=tables, refusing=tables, silent=tables)
    def fail(self, unreadable: set[str], refusing: set[str], silent: set[str]) -> None:
        self.failing.heal()
        self.failing.unreadable |= unreadable
        self.failing.refusing |= refusing
        self.failing.silent |= silent

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
            self.lander = self.lander or self.pipeline.run()
            first = sum(len(batch) for batch in self.batches[:-1])
            values = [record(route, first, kind) for route, kind in self.batches[-1]]
            batch = extent(len(self.batches) - 1)
            self.lander.land(batch, staged_by(records(values, first)))
            self.landed = len(self.batches)
        except Crash:
            self.restart()

    @rule()
    def restart(self) -> None:
        self.lander = None

    @invariant()
    def nothing_is_twice(self) -> None:
        assert not self._found() - self._produced()

    def _produced(self) -> Counter[tuple[str, int]]:
        places: Counter[tuple[str, int]] = Counter()
        values = [value for batch in self.batches for value in batch]
        for offset, (route, kind) in enumerate(values):
            places["bronze", offset] += 1
            places["quarantine" if kind == UNKNOWN else f"silver_{route}", offset] += 1
        return places

    def _found(self) -> Counter[tuple[str, int]]:
        offsets = self.pipeline.offsets()
        return Counter((table, offset) for table, found in offsets.items() for offset in found)


TestLanding = Landing.TestCase
TestLanding.settings = settings(deadline=None, max_examples=20, stateful_step_count=15)
