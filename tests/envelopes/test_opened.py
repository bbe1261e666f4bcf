from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.envelopes.opened import split_by, take_each


@given(st.lists(st.integers(-2, 3), max_size=30))
@settings(deadline=None)
def test_positions_of_each_code_stay_in_order(codes: list[int]) -> None:
    parts = split_by(np.array(codes, np.int64))
    assert sorted(int(at) for part in parts for at in part) == list(range(len(codes)))
    for part in parts:
        assert part.tolist() == sorted(part)
        assert len({codes[at] for at in part}) == 1
    assert len(parts) == len(set(codes))


@given(st.lists(st.tuples(st.integers(0, 3), st.none() | st.binary(max_size=4)), max_size=30))
@settings(deadline=None)
def test_each_part_gets_its_own_payloads(rows: list[tuple[int, bytes | None]]) -> None:
    payloads = pa.array([payload for _, payload in rows], pa.binary())
    parts = split_by(np.array([code for code, _ in rows], np.int64))
    taken = take_each(payloads, parts)
    for part, mine in zip(parts, taken, strict=True):
        assert mine.to_pylist() == [rows[at][1] for at in part]
