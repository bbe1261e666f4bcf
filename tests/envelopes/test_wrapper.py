from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.config.envelopes import PayloadMessages
from headgate.envelopes.opened import Opened
from headgate.envelopes.wrapper import WrapperEnvelope
from headgate.errors import PipelineFileError
from headgate.reasons import Reason

from .known_schemas import AVRO_ID, PROTO_ID, decoders
from .records import records

USUAL = WrapperEnvelope("wrapper", "game_name", "schema_id", "payload")
OTHER = WrapperEnvelope(
    "shop.v1.Parcel",
    "kind",
    "version",
    "body",
    'syntax = "proto3"; package shop.v1; message First {} '
    "message Parcel { string sender = 1; string kind = 9; uint32 version = 4; bytes body = 3; }",
)


def wrapped(envelope: WrapperEnvelope = USUAL, **fields: Any) -> bytes:
    value: bytes = envelope.decoder.message(**fields).SerializeToString()
    return value


def opened(values: Sequence[bytes], envelope: WrapperEnvelope = USUAL) -> Opened:
    return envelope.open(records(values), decoders())


def groups(one: Opened) -> dict[tuple[str, Any], list[tuple[int, bytes]]]:
    return {
        (group.route, group.message[0]): list(
            zip(group.rows.tolist(), group.payloads.to_pylist(), strict=True)
        )
        for group in one.groups
    }


def chess(payload: bytes, schema_id: int = PROTO_ID) -> bytes:
    return wrapped(game_name="chess", schema_id=schema_id, payload=payload)


def test_records_are_grouped_by_route_and_schema_in_the_order_they_came() -> None:
    go = wrapped(game_name="go", schema_id=PROTO_ID, payload=b"b")
    result = opened([chess(b"a"), go, chess(b"c"), chess(b"d", AVRO_ID), chess(b"")])
    assert groups(result) == {
        ("chess", PROTO_ID): [(0, b"a"), (2, b"c"), (4, b"")],
        ("chess", AVRO_ID): [(3, b"d")],
        ("go", PROTO_ID): [(1, b"b")],
    }
    assert result.rejected == []


def test_records_of_many_routes_keep_their_rows_and_order_in_chunks() -> None:
    random = Random(7)
    values = [
        random.choice(
            [
                wrapped(
                    game_name=f"game_{random.randrange(80)}", schema_id=PROTO_ID, payload=b"%d" % at
                ),
                wrapped(game_name="chess", schema_id=AVRO_ID, payload=b"%d" % at),
                wrapped(schema_id=PROTO_ID, payload=b"%d" % at),
                b"\xff",
            ]
        )
        for at in range(3_000)
    ]
    whole = records(values)
    chunks = pa.concat_tables([whole.slice(at, 1_000) for at in (0, 1_000, 2_000)])
    assert chunks["value"].num_chunks == 3
    result, expected = (USUAL.open(one, decoders()) for one in (chunks, whole.combine_chunks()))
    assert groups(result) == groups(expected)
    assert len(groups(result)) > 80
    assert all(
        rows == sorted(rows)
        and [payload for _, payload in rows] == [b"%d" % row for row, _ in rows]
        for rows in groups(result).values()
    )
    assert sorted(result.rejected, key=lambda one: one.row) == sorted(
        expected.rejected, key=lambda one: one.row
    )


def test_message_of_a_payload_is_the_declared_one_for_its_route() -> None:
    named = PayloadMessages((("chess*", "Move"), ("c*", "shop.Order"), ("go", "Stone")))
    envelope = replace(USUAL, payload_messages=named)
    values = [
        wrapped(game_name=route, schema_id=schema_id, payload=b"a")
        for route, schema_id in (("chess2", 7), ("checkers", 7), ("go", 8), ("Chess", 7))
    ]
    found = {group.route: group.message for group in opened(values, envelope).groups}
    assert found == {
        "chess2": (7, "Move"),
        "checkers": (7, "shop.Order"),
        "go": (8, "Stone"),
        "Chess": (7, None),
    }


def test_message_of_a_payload_is_left_to_the_schema_unless_declared() -> None:
    [group] = opened([chess(b"a")]).groups
    assert group.message == (PROTO_ID, None)


def test_fields_may_have_other_names_and_numbers() -> None:
    value = wrapped(OTHER, sender="me", kind="order", version=PROTO_ID, body=b"a")
    assert groups(opened([value], OTHER)) == {("order", PROTO_ID): [(0, b"a")]}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (wrapped(schema_id=7, payload=b"a"), Reason.ROUTE_MISSING),
        (b"", Reason.ROUTE_MISSING),
        (wrapped(game_name="", schema_id=7, payload=b"a"), Reason.ROUTE_UNUSABLE),
        (wrapped(game_name="../..", schema_id=7, payload=b"a"), Reason.ROUTE_UNUSABLE),
        (wrapped(game_name="x" * 513, schema_id=7, payload=b"a"), Reason.ROUTE_UNUSABLE),
        (wrapped(game_name="chess", payload=b"a"), Reason.SCHEMA_ID_MISSING),
        (wrapped(game_name="chess", schema_id=-1, payload=b"a"), Reason.SCHEMA_ID_MISSING),
        (wrapped(game_name="chess", schema_id=7), Reason.PAYLOAD_MISSING),
        (chess(b"abc")[:-1], Reason.ENVELOPE_UNDECODABLE),
        (b"\xff" * 40, Reason.ENVELOPE_UNDECODABLE),
        (b"\x0a\xff\xff\xff\xff\x0fgame", Reason.ENVELOPE_UNDECODABLE),
        (b"\x0a\x01\xff", Reason.ENVELOPE_UNDECODABLE),
        (b"\x7b" * 1_000_000, Reason.ENVELOPE_UNDECODABLE),
    ],
    ids=lambda value: value if isinstance(value, Reason) else "",
)
def test_record_that_cannot_be_opened_is_rejected_and_the_others_go_on(
    value: bytes, reason: Reason
) -> None:
    result = opened([chess(b"a"), value, chess(b"b")])
    assert [(one.row, one.reason) for one in result.rejected] == [(1, reason)]
    assert groups(result) == {("chess", PROTO_ID): [(0, b"a"), (2, b"b")]}


def test_rejected_record_says_what_is_known_of_it() -> None:
    [missing] = opened([wrapped(game_name="chess", schema_id=7)]).rejected
    assert (missing.route, missing.schema_key) == ("chess", 7)
    [unusable] = opened([wrapped(game_name="..", schema_id=7, payload=b"")]).rejected
    assert (unusable.route, unusable.schema_key) == ("..", 7)


def test_nothing_but_bad_records_give_no_group() -> None:
    result = opened([b"\xff", b"\xfe"])
    assert result.groups == []
    assert len(result.rejected) == 2


def test_no_records_give_nothing() -> None:
    assert opened([]) == Opened()


def test_largest_unsigned_id_is_no_id() -> None:
    proto = 'syntax = "proto3"; message W { string r = 1; uint64 id = 2; bytes p = 3; }'
    envelope = WrapperEnvelope("W", "r", "id", "p", proto)
    values = [wrapped(envelope, r="a", id=number, p=b"x") for number in (7, 2**64 - 1)]
    assert list(groups(opened(values, envelope))) == [("a", 7)]


def test_number_can_be_a_route() -> None:
    proto = 'syntax = "proto3"; message W { int32 r = 1; int32 id = 2; bytes p = 3; }'
    envelope = WrapperEnvelope("W", "r", "id", "p", proto)
    assert list(groups(opened([wrapped(envelope, r=5, id=7, p=b"x")], envelope))) == [("5", 7)]


@pytest.mark.parametrize(
    ("proto", "message"),
    [
        ("nonsense", "wrapper.proto:1:1: Expected top-level statement"),
        ('syntax = "proto3"; message Other {}', "no message W"),
        ('syntax = "proto3"; message W { string r = 1; bytes p = 3; }', "W has no field id"),
        (
            'syntax = "proto3"; message W { string r = 1; string id = 2; bytes p = 3; }',
            "field id is string, but must be a whole number",
        ),
        (
            'syntax = "proto3"; message W { string r = 1; int32 id = 2; string p = 3; }',
            "field p is string, but must be bytes",
        ),
        (
            'syntax = "proto3"; message W { bytes r = 1; int32 id = 2; bytes p = 3; }',
            "field r is binary, but must be a string",
        ),
        (
            'syntax = "proto3"; message W { repeated string r = 1; int32 id = 2; bytes p = 3; }',
            "field r is array<string>, but must be a string",
        ),
    ],
    ids=lambda text: text[-40:],
)
def test_wrapper_that_cannot_work_is_an_error_of_the_pipeline(proto: str, message: str) -> None:
    with pytest.raises(PipelineFileError, match="wrapper") as caught:
        WrapperEnvelope("W", "r", "id", "p", proto).check()
    assert caught.value.code == "bad-proto"
    assert message in caught.value.message


def test_envelope_travels_to_the_executors() -> None:
    assert OTHER.decoder
    assert pickle.loads(pickle.dumps(OTHER)) == OTHER


wrappers = st.builds(
    lambda **fields: wrapped(**{key: value for key, value in fields.items() if value is not None}),
    game_name=st.sampled_from(["chess", "go", "..", None]),
    schema_id=st.sampled_from([PROTO_ID, AVRO_ID, 404, -1, None]),
    payload=st.none() | st.binary(max_size=4),
)


@given(st.lists(wrappers | st.binary(max_size=12), max_size=25))
@settings(deadline=None, max_examples=60)
def test_every_record_is_in_one_group_or_rejected_once(values: list[bytes]) -> None:
    result = opened(values)
    placed = [int(row) for group in result.groups for row in group.rows]
    rejected = [one.row for one in result.rejected]
    assert sorted(placed + rejected) == list(range(len(values)))
    for group in result.groups:
        assert group.rows.tolist() == sorted(group.rows)
        assert len(group.rows) == len(group.payloads)
