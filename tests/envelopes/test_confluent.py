from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka.schema_registry.serde import SchemaId
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.envelopes.confluent import ConfluentEnvelope
from headgate.envelopes.opened import MessageKey, Opened
from headgate.reasons import Reason

from .known_schemas import AVRO_GUID, AVRO_ID, GUID, OTHER_ID, PROTO_ID, decoders
from .records import Headers, records

UNKNOWN_ID = 404


def proto(payload: bytes, *indexes: int, id: int = PROTO_ID) -> bytes:
    return SchemaId("PROTOBUF", id, message_indexes=list(indexes or (0,))).id_to_bytes() + payload


def avro(payload: bytes, id: int = AVRO_ID) -> bytes:
    return SchemaId("AVRO", id).id_to_bytes() + payload


def by_guid(guid: str, *indexes: int) -> bytes:
    return SchemaId("PROTOBUF", guid=guid, message_indexes=list(indexes) or None).guid_to_bytes()


def opened(
    values: Sequence[bytes],
    topics: Sequence[str | None] | None = None,
    headers: Sequence[Headers] | None = None,
    envelope: ConfluentEnvelope | None = None,
) -> Opened:
    return (envelope or ConfluentEnvelope()).open(records(values, topics, headers), decoders())


def groups(one: Opened) -> dict[tuple[str, MessageKey], list[tuple[int, bytes]]]:
    found: dict[tuple[str, MessageKey], list[tuple[int, bytes]]] = {}
    for group in one.groups:
        rows = zip(group.rows.tolist(), group.payloads.to_pylist(), strict=True)
        found.setdefault((group.route, group.message), []).extend(rows)
    return found


def reasons(one: Opened) -> dict[int, Reason]:
    return {rejected.row: rejected.reason for rejected in one.rejected}


def test_protobuf_is_taken_out_of_its_frame() -> None:
    result = opened([proto(b"a"), proto(b""), b"\0\0\0\0\x07\x02\x00c"])
    assert groups(result) == {("games", (PROTO_ID, (0,))): [(0, b"a"), (1, b""), (2, b"c")]}
    assert result.rejected == []


def test_avro_is_taken_out_of_its_frame() -> None:
    result = opened([avro(b"a"), avro(b"")])
    assert groups(result) == {("games", (AVRO_ID, (0,))): [(0, b"a"), (1, b"")]}


def test_several_messages_and_ids_are_told_apart() -> None:
    result = opened(
        [
            proto(b"a"),
            avro(b"b"),
            proto(b"c", 1),
            proto(b"d", 0, 0),
            proto(b"e", id=OTHER_ID),
            proto(b"f"),
        ]
    )
    assert groups(result) == {
        ("games", (PROTO_ID, (0,))): [(0, b"a"), (5, b"f")],
        ("games", (AVRO_ID, (0,))): [(1, b"b")],
        ("games", (PROTO_ID, (1,))): [(2, b"c")],
        ("games", (PROTO_ID, (0, 0))): [(3, b"d")],
        ("games", (OTHER_ID, (0,))): [(4, b"e")],
    }


def test_guid_before_the_payload_names_the_schema() -> None:
    result = opened([by_guid(GUID, 1) + b"a", by_guid(AVRO_GUID) + b"b", by_guid(GUID, 0) + b"c"])
    assert groups(result) == {
        ("games", (GUID, (1,))): [(0, b"a")],
        ("games", (AVRO_GUID, (0,))): [(1, b"b")],
        ("games", (GUID, (0,))): [(2, b"c")],
    }


def test_header_names_the_schema_and_the_value_is_all_payload() -> None:
    headers: list[Headers] = [
        {"other": b"x", "__value_schema_id": by_guid(GUID, 1)},
        {"__value_schema_id": proto(b"", 0)},
        {"__value_schema_id": avro(b"")},
        {"__key_schema_id": by_guid(GUID, 1)},
        {"__value_schema_id": by_guid(GUID, 1)},
        {"__value_schema_id": None},
    ]
    result = opened([b"a", b"b", b"c", proto(b"d"), b"e", proto(b"f")], headers=headers)
    assert groups(result) == {
        ("games", (GUID, (1,))): [(0, b"a"), (4, b"e")],
        ("games", (PROTO_ID, (0,))): [(1, b"b"), (3, b"d"), (5, b"f")],
        ("games", (AVRO_ID, (0,))): [(2, b"c")],
    }


def test_header_that_names_no_schema_is_a_wrong_magic_byte() -> None:
    values = [proto(b"a")] * 3
    headers: list[Headers] = [
        {"__value_schema_id": b""},
        {"__value_schema_id": b"\x02\0\0\0\x07"},
        {"__value_schema_id": b"\x01\0\0\0\x07"},
    ]
    result = opened(values, headers=headers)
    assert reasons(result) == dict.fromkeys(range(3), Reason.MAGIC_BYTE_WRONG)


def test_header_with_a_broken_message_index_is_refused() -> None:
    header = by_guid(GUID, 1)[:-1]
    result = opened([b"a"], headers=[{"__value_schema_id": header}])
    assert reasons(result) == {0: Reason.MESSAGE_INDEX_WRONG}
    assert result.rejected[0].schema_key == GUID


def test_header_without_a_message_index_leaves_the_choice_to_the_schema() -> None:
    headers: list[Headers] = [
        {"__value_schema_id": header}
        for header in (by_guid(GUID, 0)[:-1], b"\0\0\0\0\x07", by_guid(GUID, 0))
    ]
    assert groups(opened([b"a", b"b", b"c"], headers=headers)) == {
        ("games", (GUID, None)): [(0, b"a")],
        ("games", (PROTO_ID, None)): [(1, b"b")],
        ("games", (GUID, (0,))): [(2, b"c")],
    }


def test_value_without_a_frame_is_a_wrong_magic_byte() -> None:
    values = [b"", b"\0", b"\0\0\0\0", b"\x02\0\0\0\x07a", b'{"x": 1}', b"\x01short", proto(b"ok")]
    result = opened(values)
    assert reasons(result) == dict.fromkeys(range(6), Reason.MAGIC_BYTE_WRONG)
    details = {one.row: one.detail for one in result.rejected}
    assert details[0] == "begins with nothing"
    assert details[3] == "begins with 02 00 00 00 07 61"
    assert groups(result) == {("games", (PROTO_ID, (0,))): [(6, b"ok")]}


@pytest.mark.parametrize(
    "index", [b"", b"\x02", b"\x01", b"\xff" * 30, b"\xfe\xff\xff\xff\x0f", b"\x02\x01", b"\x22"]
)
def test_absurd_message_index_is_refused(index: bytes) -> None:
    result = opened([b"\0\0\0\0\x07" + index, proto(b"ok")])
    assert reasons(result) == {0: Reason.MESSAGE_INDEX_WRONG}
    assert result.rejected[0].schema_key == PROTO_ID
    assert groups(result) == {("games", (PROTO_ID, (0,))): [(1, b"ok")]}


def test_unknown_schema_is_left_to_its_decoder() -> None:
    result = opened([proto(b"a", id=UNKNOWN_ID)])
    assert [group.message[0] for group in result.groups] == [UNKNOWN_ID]
    assert result.rejected == []


def test_topic_is_the_route() -> None:
    result = opened([proto(b"a"), proto(b"b"), proto(b"c")], topics=["chess", "go", "chess"])
    assert groups(result) == {
        ("chess", (PROTO_ID, (0,))): [(0, b"a"), (2, b"c")],
        ("go", (PROTO_ID, (0,))): [(1, b"b")],
    }


def test_record_without_a_topic_has_no_route() -> None:
    result = opened([proto(b"a"), proto(b"b")], topics=[None, "..."])
    assert reasons(result) == dict.fromkeys(range(2), Reason.ROUTE_MISSING)


def test_record_type_can_be_the_route() -> None:
    values = [proto(b"a"), proto(b"b", 1), proto(b"c", 0, 0), avro(b"d"), proto(b"e", 5)]
    result = opened(values, envelope=ConfluentEnvelope("record"))
    assert dict(groups(result).keys()) == {
        "shop.Order": (PROTO_ID, (0,)),
        "shop.Refund": (PROTO_ID, (1,)),
        "shop.Order.Line": (PROTO_ID, (0, 0)),
        "shop.Pizza": (AVRO_ID, (0,)),
        "games": (PROTO_ID, (5,)),
    }


def test_no_records_give_nothing() -> None:
    assert opened([]) == Opened()


frames: st.SearchStrategy[tuple[bytes, Headers]] = st.one_of(
    st.tuples(st.binary(max_size=40), st.none()),
    st.tuples(st.builds(lambda rest: b"\0\0\0\0\x07" + rest, st.binary(max_size=40)), st.none()),
    st.tuples(st.builds(lambda rest: b"\x01" + rest, st.binary(max_size=40)), st.none()),
    st.tuples(st.builds(proto, st.binary(max_size=9), st.integers(0, 3)), st.just({})),
    st.tuples(st.builds(avro, st.binary(max_size=9)), st.none()),
    st.tuples(
        st.binary(max_size=9),
        st.builds(lambda value: {"__value_schema_id": value}, st.none() | st.binary(max_size=20)),
    ),
)


@given(st.lists(frames, max_size=25))
@settings(deadline=None, max_examples=60)
def test_every_record_is_in_one_group_or_rejected_once(many: list[tuple[Any, Any]]) -> None:
    result = opened([value for value, _ in many], headers=[headers for _, headers in many])
    placed = [int(row) for group in result.groups for row in group.rows]
    rejected = [one.row for one in result.rejected]
    assert sorted(placed + rejected) == list(range(len(many)))
    for group in result.groups:
        assert group.rows.tolist() == sorted(group.rows)
        assert len(group.rows) == len(group.payloads)
