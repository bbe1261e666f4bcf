from __future__ import annotations

from collections.abc import Sequence
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.envelopes import opened as opened_module
from headgate.envelopes.confluent import ConfluentEnvelope
from headgate.envelopes.opened import Envelope, MessageKey, Opened

from .known_schemas import PROTO_ID, decoders
from .records import records
from .test_confluent import avro, groups, proto, reasons
from .test_wrapper import USUAL, chess, wrapped

SPELLED_OUT = b"\0\0\0\0\x07\x02\x00"
"""The first message's index in full, where most write a zero for it."""
FRAMED = st.one_of(
    st.builds(proto, st.binary(max_size=9), st.integers(0, 3)),
    st.builds(avro, st.binary(max_size=9)),
    st.builds(lambda rest: SPELLED_OUT + rest, st.binary(max_size=9)),
    st.binary(max_size=9),
)
WRAPPED = st.one_of(
    st.builds(
        lambda route, payload: wrapped(game_name=route, schema_id=PROTO_ID, payload=payload),
        st.sampled_from(["chess", "go", "", ".."]),
        st.binary(max_size=9),
    ),
    st.just(wrapped(game_name="go", schema_id=PROTO_ID)),
    st.just(wrapped(game_name="go", payload=b"a")),
    st.binary(max_size=9),
)

Rows = dict[tuple[str, MessageKey], list[tuple[int, bytes]]]


def rows(one: Opened) -> Rows:
    return {key: sorted(rows) for key, rows in groups(one).items()}


def opened(envelope: Envelope, chunks: Sequence[pa.Table]) -> Opened:
    return envelope.open(pa.concat_tables(chunks), decoders())


@given(st.data(), st.integers(1, 30), st.integers(1, 30))
@settings(deadline=None, max_examples=60)
@pytest.mark.parametrize(
    ("envelope", "values"),
    [(ConfluentEnvelope(), FRAMED), (USUAL, WRAPPED)],
    ids=["framed", "wrapped"],
)
def test_records_in_chunks_are_opened_as_in_one(
    envelope: Envelope,
    values: st.SearchStrategy[bytes],
    data: st.DataObject,
    size: int,
    largest: int,
) -> None:
    found = data.draw(st.lists(values, min_size=1, max_size=30))
    whole = records(found, ["games", "more"] * len(found[::2]) if len(found) % 2 == 0 else None)
    chunks = [whole[start : start + size] for start in range(0, len(whole), size)]
    with patch.object(opened_module, "_MAX_GROUP", largest):
        in_chunks = opened(envelope, chunks)
    at_once = opened(envelope, [whole])
    assert all(len(group.rows) <= largest for group in in_chunks.groups)
    assert reasons(in_chunks) == reasons(at_once)
    assert rows(in_chunks) == rows(at_once)


def test_framed_records_of_one_kind_are_one_group() -> None:
    some = records([proto(b"a"), SPELLED_OUT + b"b", proto(b"c")])
    [group] = opened(ConfluentEnvelope(), [some[:2], some[2:]]).groups
    assert (group.route, group.message) == ("games", (PROTO_ID, (0,)))
    assert sorted(zip(group.rows.tolist(), group.payloads.to_pylist(), strict=True)) == [
        (0, b"a"),
        (1, b"b"),
        (2, b"c"),
    ]


def test_wrapped_records_of_one_kind_are_one_group() -> None:
    some = records([chess(b"a"), b"\xff", chess(b"b"), chess(b"c")])
    [group] = opened(USUAL, [some[:1], some[1:2], some[2:]]).groups
    assert group.rows.tolist() == [0, 2, 3]
    assert group.payloads.to_pylist() == [b"a", b"b", b"c"]
