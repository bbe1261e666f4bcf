from __future__ import annotations

import pickle

from headgate.config import Registry
from headgate.engine.record_plan import RecordPlan
from headgate.envelopes.confluent import ConfluentEnvelope
from headgate.lake.names import TableNames

PLAN = RecordPlan(
    lake="/lake",
    names=TableNames("silver_{route}", "quarantine", "ledger"),
    envelope=ConfluentEnvelope(),
    registry=Registry(folder="/schemas"),
    version=3,
    known_tables=frozenset({"a", "b"}),
    max_tables=4,
    max_record_bytes=100,
)


def test_remaining_tables_are_what_the_cap_leaves() -> None:
    assert PLAN.remaining_tables == 2
    assert PLAN.limited_to([]).remaining_tables == 2
    full = RecordPlan(**{**vars(PLAN), "max_tables": 1})
    assert full.remaining_tables == 0


def test_known_tables_may_always_be_written() -> None:
    assert PLAN.may_write("a", {"x", "y"})


def test_new_tables_may_be_written_up_to_the_cap() -> None:
    assert PLAN.may_write("x", set())
    assert PLAN.may_write("y", {"x"})
    assert not PLAN.may_write("z", {"x", "y"})
    assert PLAN.may_write("x", {"x", "y"})


def test_limited_plan_writes_the_tables_it_names_and_no_others() -> None:
    limited = PLAN.limited_to(["x", "y", "z"])
    assert [limited.may_write(table, set()) for table in "abxyz"] == [True] * 4 + [False]


def test_plan_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(PLAN)) == PLAN
