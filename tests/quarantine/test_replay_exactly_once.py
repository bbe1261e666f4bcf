"""Replays and drops that crash anywhere: every record is in one place, once."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.quarantine.filter import QuarantineFilter
from headgate.quarantine.replay import PortionLimit
from headgate.testing import Crash, FailingCommitter
from headgate.testing.lake import stage_in_process
from tests.engine.games import PLAIN, UNKNOWN, WIDER, GamesLake, extent, record, records
from tests.quarantine.replaying import Step, crash_at, drop, learn, places, replay

RUBBISH, NEVER_KNOWN = 0, 99

Kind = tuple[str, int]
Failure = tuple[str, str]


@dataclass(frozen=True)
class Try:
    """A replay, or a drop of rubbish, and the failure to inject."""

    dropping: bool
    wanted: QuarantineFilter
    at_a_time: int
    trouble: Step | Failure | None


kinds = st.tuples(
    st.sampled_from("ab"), st.sampled_from([UNKNOWN, PLAIN, WIDER, NEVER_KNOWN, RUBBISH])
)
troubles: st.SearchStrategy[Step | Failure | None] = st.one_of(
    st.sampled_from(Step),
    st.tuples(
        st.sampled_from(["crashing_before", "crashing_after", "refusing", "losing_response"]),
        st.sampled_from(["silver_a", "silver_b", "bronze"]),
    ),
    st.none(),
)
tries = st.builds(
    Try,
    dropping=st.sampled_from([False, False, True]),
    wanted=st.sampled_from(
        [QuarantineFilter(), QuarantineFilter(reason="schema_unknown"), QuarantineFilter(route="a")]
    ),
    at_a_time=st.integers(1, 3),
    trouble=troubles,
)


@settings(deadline=None, max_examples=8)
@given(
    first=st.lists(kinds, max_size=4),
    more=st.lists(kinds, max_size=3),
    tried=st.lists(tries, min_size=1, max_size=3),
)
def test_every_record_is_in_one_place(
    first: list[Kind], more: list[Kind], tried: list[Try]
) -> None:
    sent = [("a", UNKNOWN), ("b", UNKNOWN), *first]
    with tempfile.TemporaryDirectory() as folder:
        lake = GamesLake(Path(folder), bronze="bronze")
        stream = lake.start()
        lake.committer = failing = FailingCommitter(lake.committer)
        stream.land(extent(0), stage_in_process(records([_value(one) for one in sent])))
        learn(lake)
        for number, one in enumerate(tried):
            with _having(one.trouble, failing):
                if one.dropping:
                    drop(lake, QuarantineFilter(reason="envelope_undecodable"))
                else:
                    replay(lake, one.wanted, portion=PortionLimit(one.at_a_time))
            if number == 0 and more:
                values = [_value(one) for one in more]
                stream.land(extent(1), stage_in_process(records(values, len(sent))))
                sent += more
        replay(lake)
        _check(lake, sent)


def _value(kind: Kind) -> bytes:
    route, schema_id = kind
    return b"\xff" if schema_id == RUBBISH else record(route, 1, schema_id)


@contextmanager
def _having(trouble: Step | Failure | None, failing: FailingCommitter) -> Iterator[None]:
    with ExitStack() as stack:
        if isinstance(trouble, Step):
            stack.enter_context(crash_at(trouble))
        elif trouble is not None:
            kind, table = trouble
            getattr(failing, kind).add(table)
            stack.callback(failing.heal)
        stack.enter_context(suppress(Crash))
        yield


def _check(lake: GamesLake, sent: list[Kind]) -> None:
    found = places(lake)
    assert set(found.values()) == {1}
    for offset, (route, kind) in enumerate(sent):
        here = {place for place, at in found if at == offset}
        if kind == RUBBISH:
            assert here in ({"open"}, {"dropped"})
        elif kind == NEVER_KNOWN:
            assert here - {"bronze"} == {"open"}
        else:
            assert here == {f"silver_{route}", "bronze"}
