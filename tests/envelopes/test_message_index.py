from __future__ import annotations

import pytest
from confluent_kafka.schema_registry.serde import SchemaId
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.envelopes.confluent import MAX_INDEXES, BadIndex, read_message_index


@pytest.mark.parametrize("spelling", [b"\x00", b"\x02\x00"], ids=["short", "long"])
def test_first_message_has_two_spellings(spelling: bytes) -> None:
    assert read_message_index(spelling + b"payload", 0) == ((0,), len(spelling))


def test_indexes_begin_where_they_are_said_to() -> None:
    assert read_message_index(b"\xff\xff\xff\xff\xff\x04\x02\x06rest", 5) == ((1, 3), 8)


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=MAX_INDEXES), st.binary(max_size=9))
@settings(deadline=None)
def test_what_confluents_serializer_writes_is_read(indexes: list[int], payload: bytes) -> None:
    written = SchemaId("PROTOBUF", 7, message_indexes=indexes).id_to_bytes()
    assert read_message_index(written + payload, 5) == (tuple(indexes), len(written))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x02",
        b"\x04\x00",
        b"\x80",
        b"\x02\x80",
        b"\xff" * 50,
        b"\x02" + b"\xff" * 50,
        b"\x01",
        b"\x02\x01",
        b"\x22" + b"\x00" * 17,
        b"\xfe\xff\xff\xff\x0f" + b"\x00" * 50,
    ],
    ids=[
        "nothing",
        "a count and no index",
        "one index of two",
        "half a count",
        "half an index",
        "an endless count",
        "an endless index",
        "a negative count",
        "a negative index",
        "seventeen indexes",
        "two thousand million indexes",
    ],
)
def test_what_is_no_list_of_indexes_is_refused(data: bytes) -> None:
    with pytest.raises(BadIndex):
        read_message_index(data, 0)


@given(st.binary(max_size=120))
@settings(deadline=None)
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        indexes, start = read_message_index(data, 0)
    except BadIndex:
        return
    assert 1 <= len(indexes) <= MAX_INDEXES
    assert all(0 <= index < 2**35 for index in indexes)
    assert start <= len(data)
