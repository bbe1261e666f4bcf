from __future__ import annotations

from unittest.mock import patch

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.envelopes import opened as open_in_pieces_module
from headgate.envelopes.confluent import ConfluentEnvelope
from headgate.envelopes.opened import Opened, open_in_pieces

from .known_schemas import PROTO_ID, decoders
from .records import records
from .test_confluent import avro, groups, proto, reasons

VALUES = st.one_of(
    st.builds(proto, st.binary(max_size=9), st.integers(0, 3)),
    st.builds(avro, st.binary(max_size=9)),
    st.builds(lambda rest: b"\0\0\0\0\x07\x02\x00" + rest, st.binary(max_size=9)),
    st.binary(max_size=9),
)
SPELLED_OUT = b"\0\0\0\0\x07\x02\x00"
"""The first message's index in full, where most write a zero for it."""


def opened(pieces: list[pa.Table]) -> Opened:
    return open_in_pieces(ConfluentEnvelope(), pa.concat_tables(pieces), decoders())


@given(st.lists(VALUES, min_size=1, max_size=30), st.integers(1, 30), st.integers(1, 30))
@settings(deadline=None, max_examples=60)
def test_pieces_have_in_common_what_the_whole_has(
    values: list[bytes], size: int, largest: int
) -> None:
    whole = records(values, ["games", "more"] * len(values[::2]) if len(values) % 2 == 0 else None)
    pieces = [whole[start : start + size] for start in range(0, len(whole), size)]
    with patch.object(open_in_pieces_module, "_MAX_GROUP", largest):
        of_pieces = opened(pieces)
    at_once = ConfluentEnvelope().open(whole, decoders())
    assert reasons(of_pieces) == reasons(at_once)
    told = {key: sorted(rows) for key, rows in groups(of_pieces).items()}
    assert told == {key: sorted(rows) for key, rows in groups(at_once).items()}


def test_few_records_of_one_kind_are_one_group() -> None:
    some = records([proto(b"a"), SPELLED_OUT + b"b", proto(b"c")])
    [group] = opened([some[:2], some[2:]]).groups
    assert (group.route, group.message) == ("games", (PROTO_ID, (0,)))
    assert sorted(zip(group.rows.tolist(), group.payloads.to_pylist(), strict=True)) == [
        (0, b"a"),
        (1, b"b"),
        (2, b"c"),
    ]
