from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.envelopes.opened import Opened, payloads_of, split_by


@given(st.lists(st.integers(-2, 3), max_size=30))
@settings(deadline=None)
def test_positions_of_each_code_stay_in_order(codes: list[int]) -> None:
    parts = split_by(np.array(codes, np.int64))
    assert sorted(int(at) for part in parts for at in part) == list(range(len(codes)))
    for part in parts:
        assert part.tolist() == sorted(part)
        assert len({codes[at] for at in part}) == 1
    assert len(parts) == len(set(codes))


@given(
    st.lists(st.tuples(st.integers(0, 3), st.none() | st.binary(max_size=4)), min_size=1),
    st.lists(st.binary(max_size=4), min_size=1),
)
@settings(deadline=None)
def test_groups_have_their_own_payloads(
    rows: list[tuple[int, bytes | None]], elsewhere: list[bytes]
) -> None:
    opened, one = Opened(), pa.array([payload for _, payload in rows], pa.binary())
    for part in split_by(np.array([code for code, _ in rows], np.int64)):
        opened.add("chess", (1, (0,)), part, one, part)
    for group in opened.groups:
        assert group.payloads.to_pylist() == [rows[at][1] for at in group.rows]
    opened.add("go", (2, (0,)), _all(elsewhere), pa.array(elsewhere, pa.binary()), _all(elsewhere))
    each = [payload for group in opened.groups for payload in group.payloads.to_pylist()]
    assert payloads_of(opened.groups).to_pylist() == each
    assert payloads_of(opened.groups[:-1]).to_pylist() == each[: -len(elsewhere)]


def _all(payloads: list[bytes]) -> np.ndarray:
    return np.arange(len(payloads))
