"""How long messages are, against what python-protobuf writes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.formats.protobuf import ProtobufDecoder
from headgate.formats.protobuf import message as module
from headgate.formats.protobuf.wire import lengths_of
from headgate.registry.registry import SchemaText
from tests.formats.protobuf.messages import MessageMaker

KINDS = [
    *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32"),
    *("fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes", "Colour"),
    *("google.protobuf.Timestamp", "google.protobuf.Duration", "google.protobuf.Int32Value"),
]
PLAIN = "".join(f"{kind} a{at} = {at + 1};" for at, kind in enumerate(KINDS))
OPTIONAL = "".join(f"optional {kind} b{at} = {at + 101};" for at, kind in enumerate(KINDS))
HEAD = 'syntax = "proto3";' + "".join(
    f'import "google/protobuf/{name}.proto";' for name in ("timestamp", "duration", "wrappers")
)
ALL = ProtobufDecoder.compile(
    SchemaText(
        "PROTOBUF",
        f"{HEAD} message All {{ {PLAIN} {OPTIONAL} repeated All more = 200; }}"
        "enum Colour { RED = 0; BLUE = 1; FAR = 300; }",
    ),
    (0,),
)
TEXTS = ProtobufDecoder.compile(
    SchemaText("PROTOBUF", f"{HEAD} message Texts {{ string a = 1; optional bytes b = 2; }}"), (0,)
)


def measured(decoder: ProtobufDecoder, messages: list[Any]) -> tuple[list[int], list[int]]:
    """What the columns say, and what the payloads are."""
    assert decoder.fast is not None
    payloads = pa.array([one.SerializeToString() for one in messages], pa.binary())
    raws = decoder.fast.handler.array_to_record_batch(payloads).columns
    sizes = decoder.columns.sizes_of_fields(raws, len(messages))
    return sizes.tolist(), lengths_of(payloads).tolist()


@pytest.mark.parametrize("many", [0, 100, 1_000], ids=["columns", "both", "tables"])
@pytest.mark.parametrize("share", [0.03, 0.5, 1.0])
def test_messages_of_every_scalar_are_as_long_as_their_payloads(
    many: int, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TABLE_UP_TO", many)
    maker = MessageMaker(7, share)
    for count in (1, 40, 600):
        messages = [maker.fill(ALL.message()) for _ in range(count)]
        columns, payloads = measured(ALL, messages)
        assert columns == payloads


@given(st.lists(st.tuples(st.integers(0, 20_000), st.none() | st.integers(0, 300)), min_size=1))
@settings(deadline=None, max_examples=60)
def test_lengths_of_texts_take_room_too(rows: list[tuple[int, int | None]]) -> None:
    messages = [
        TEXTS.message(a="x" * text, b=None if blob is None else b"x" * blob) for text, blob in rows
    ]
    columns, payloads = measured(TEXTS, messages)
    assert columns == payloads
