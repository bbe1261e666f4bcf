from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.formats.protobuf import ProtobufDecoder
from headgate.registry.registry import SchemaText

SCHEMA = """syntax = "proto2";
message M {
  optional int32 n = 1;
  optional In in = 2;
  repeated In many = 3;
  map<string, In> by = 4;
  optional E e = 5;
  repeated E es = 6 [packed = true];
  optional M me = 7;
  map<string, E> es_by = 9;
  optional group G = 8 { optional int32 g = 1; }
  extensions 100 to 199;
  message In { optional int32 a = 1; extensions 50; }
}
enum E { A = 0; B = 1; }
"""
DECODER = ProtobufDecoder.compile(SchemaText("PROTOBUF", SCHEMA))
WITHOUT_GROUP = ProtobufDecoder.compile(
    SchemaText("PROTOBUF", SCHEMA.replace("optional group G = 8 { optional int32 g = 1; }", ""))
)
"""Read by ptars."""
PLAIN = ProtobufDecoder.compile(
    SchemaText(
        "PROTOBUF", SCHEMA.replace("extensions 100 to 199;", "").replace("extensions 50;", "")
    )
)
PARTS = {
    "known": [b"\x08\x01", b"\x12\x02\x08\x05", b"\x1a\x00", b"\x28\x01", b"\x32\x02\x00\x01"],
    "unknown": [b"\x78\x01", b"\xf8\x00\x81\x00", b"\x7a\x01a", b"\x79" + b"\0" * 8],
    "extension": [b"\xa2\x06\x01e", b"\xb8\x0c\x01"],
    "nested": [b"\x12\x02\x78\x01", b"\x1a\x02\x78\x01", b"\x3a\x04\x12\x02\x78\x01"],
    "nested extension": [b"\x12\x03\x90\x03\x01", b"\x3a\x03\xa2\x06\x00"],
}
KIND = {part: kind for kind, parts in PARTS.items() for part in parts}


def decoded(decoder: ProtobufDecoder, payloads: list[bytes]) -> Iterator[bool | None]:
    """Whether each has unknown fields; None where it is bad."""
    result = decoder.decode(pa.array(payloads, pa.binary()))
    for row in range(len(payloads)):
        yield None if row in result.bad else row in result.unknown


payloads = st.lists(st.sampled_from(list(KIND)), max_size=6).map(tuple)


@pytest.mark.parametrize("decoder", [DECODER, WITHOUT_GROUP], ids=["by row", "by ptars"])
@given(parts=payloads)
@settings(deadline=None, max_examples=150)
@example(parts=())
@example(parts=(b"\x78\x01", b"\x08\x01", b"\xa2\x06\x01e", b"\x7a\x01a"))
def test_unknown_data_is_what_was_sent_in_the_order_it_was_sent(
    decoder: ProtobufDecoder, parts: tuple[bytes, ...]
) -> None:
    payload, kinds = b"".join(parts), {KIND[part] for part in parts}
    assert list(decoded(decoder, [payload])) == [bool(kinds - {"known"})]
    found = decoder.unknown_fields(payload)
    top_level = b"".join(part for part in parts if KIND[part] in ("unknown", "extension"))
    is_nested = kinds & {"nested", "nested extension"}
    assert found.data == (payload if is_nested else top_level)
    assert found.only_extensions == (not kinds & {"unknown", "nested"})


@pytest.mark.parametrize(
    ("payload", "detail"),
    [
        (b"\x78\x01\x78\x02", "15 (varint)"),
        (b"\x7a\x00\x12\x02\x78\x01", "15 (length-delimited), in.15 (varint)"),
        (b"\x0a\x01x", "1 (length-delimited)"),
        (b"\x0d\0\0\0\0", "1 (32 bits)"),
        (b"\x0b\x0c", "1 (group)"),
        (b"\x28\x09", "5 (varint)"),
        (b"\x32\x02\x01\x09", "6 (varint)"),
        (b"\x1a\x00\x1a\x09\x79" + b"\0" * 8, "many.15 (64 bits)"),
        (b"\x22\x07\x0a\x01k\x12\x02\x78\x01", "by.15 (varint)"),
        (b"\x22\x05\x0a\x01k\x78\x01", "4 (length-delimited)"),
        (b"\x4a\x05\x0a\x01k\x10\x09", "9 (length-delimited)"),
        (b"\x3a\x04\x3a\x02\x78\x01", "me.me.15 (varint)"),
    ],
)
def test_unknown_fields_are_named(payload: bytes, detail: str) -> None:
    for decoder in (DECODER, WITHOUT_GROUP):
        assert list(decoded(decoder, [payload])) == [True]
        found = decoder.unknown_fields(payload)
        assert found.detail == f"message M has no field {detail}"
        assert not found.only_extensions


def test_only_some_of_many_unknown_fields_are_named() -> None:
    payload = b"".join(bytes([number << 3, 1]) for number in range(9, 16)) * 2
    payload += b"".join(bytes([0x80 | number << 3 & 0x7F, 1, 1]) for number in range(16, 24))
    detail = DECODER.unknown_fields(payload).detail
    assert detail.endswith("18 (varint) and more")


@pytest.mark.parametrize("decoder", [DECODER, PLAIN], ids=["with extensions", "without"])
def test_unknown_field_after_many_nested_messages_is_no_extension(decoder: ProtobufDecoder) -> None:
    payload = b"\x1a\x00" * 20_000 + b"\x1a\x02\x78\x01"
    assert list(decoded(decoder, [payload])) == [True]
    found = decoder.unknown_fields(payload)
    assert (found.data, found.only_extensions) == (payload, False)
    named = decoder is DECODER
    assert found.detail == (
        "message M has no field many.15 (varint)"
        if named
        else "message M has unknown fields in nested messages"
    )


SPOILED = [b"\xff", b"\x12\x05\x08", b"\x08"]
CLOSED = [b"\x28\x09", b"\x32\x02\x01\x09", b"\x2a\x00", b"\x28\x01\x28\x09"]


@given(
    st.sampled_from([*KIND, *CLOSED, b"\x30\x01", b"\x30\x09"]),
    st.lists(st.sampled_from([*KIND, *CLOSED, *SPOILED]), max_size=8),
)
@settings(deadline=None, max_examples=200)
@example(b"\x28\x09", [b"\xff"])
def test_payload_has_unknown_fields_among_any_others(payload: bytes, others: list[bytes]) -> None:
    [alone] = decoded(WITHOUT_GROUP, [payload])
    assert alone == next(decoded(DECODER, [payload]))
    assert next(decoded(WITHOUT_GROUP, [payload, *others])) == alone
