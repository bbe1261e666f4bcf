from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headgate.quarantine.replay import match_records
from headgate.schema.origin import SOURCE_COLUMNS

texts = st.none() | st.sampled_from(["", "a", "b"])
some_bytes = st.none() | st.sampled_from([b"", b"a", b"b"])
numbers = st.none() | st.integers(0, 1)
rows = st.fixed_dictionaries(
    {
        "value": some_bytes,
        "topic": texts,
        "file": texts,
        "partition": numbers,
        "offset": numbers,
        "timestamp": numbers,
        "key": some_bytes,
        "headers": st.none()
        | st.lists(st.fixed_dictionaries({"key": texts, "value": some_bytes}), max_size=2),
    }
)


@given(st.lists(rows, max_size=8), st.randoms(use_true_random=False))
def test_each_record_matches_one_equal_record(
    made: list[dict[str, object]], random: object
) -> None:
    among = pa.Table.from_pylist(made, SOURCE_COLUMNS)
    order = list(range(len(made)))
    random.shuffle(order)  # type: ignore[attr-defined]
    some = among.take(pa.array(order[: len(order) // 2 + 1], pa.int64()))
    found = match_records(some, among)
    assert len(set(found)) == len(found) == some.num_rows
    assert among.take(pa.array(found, pa.int64())).to_pylist() == some.to_pylist()
