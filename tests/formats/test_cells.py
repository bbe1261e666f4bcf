"""Bounds of the memory that payloads take as columns: never too low, and kept by parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.formats import cells
from headgate.formats.avro.encoding import encode_long
from headgate.formats.cells import MAX_CELLS, cells_of, parts_of
from headgate.formats.decoder import Decoder
from headgate.formats.protobuf import ProtobufDecoder
from headgate.registry.registry import SchemaText
from tests.formats.avro.strategies import payloads as avro_payloads
from tests.formats.avro.strategies import schemas
from tests.formats.avro.test_batch import valid_decoder
from tests.formats.avro.writing import parsed, record
from tests.formats.protobuf.test_values import GROUPED, THREE, TWO, payloads_of

WIDTH = 100
_FIELDS = " ".join(f"int64 f{at} = {at + 1};" for at in range(WIDTH))
WIDE = ProtobufDecoder.compile(
    SchemaText(
        "PROTOBUF",
        'syntax = "proto3"; message R { repeated M m = 1; map<string, M> by = 20; string s = 2; '
        f"repeated int64 n = 3; repeated E e = 4; In in = 5; message In {{ repeated M deep = 6; }} "
        f"message E {{}} }} message M {{ {_FIELDS} }}",
    ),
    (0,),
)
ITEM = record("M", **{f"f{at}": ["null", "long"] for at in range(WIDTH)})
WIDE_AVRO = parsed(record("R", m={"type": "array", "items": ITEM}))


def require_bounds(decoder: Decoder, payloads: list[bytes]) -> None:
    together = pa.array(payloads, pa.binary())
    most = decoder.most_cells(together, 0)
    if most is None:
        assert not payloads
        return
    for payload, bound in zip(payloads, most.tolist(), strict=True):
        found = decoder.decode(pa.array([payload], pa.binary()))
        assert found.bad or cells_of(found.columns.columns) <= bound
    sliced = pa.array([b"before", *payloads, b"after"], pa.binary())[1:-1]
    again = decoder.most_cells(sliced, 0)
    assert again is not None
    assert np.array_equal(most, again)


@pytest.mark.parametrize("decoder", [THREE, TWO, GROUPED], ids=["proto3", "proto2", "groups"])
@pytest.mark.parametrize("share", [0.05, 0.4])
def test_protobuf_payloads_have_at_most_so_many_cells(
    decoder: ProtobufDecoder, share: float
) -> None:
    require_bounds(decoder, [b"", *payloads_of(decoder, 30, 3, share), b""])


@pytest.mark.parametrize(
    "element",
    [
        b"\x0a\x00",
        b"\x8a\x00\x00",
        b"\x8a\x80\x80\x00\x00",
        b"\xa2\x01\x00",
        b"\xa2\x81\x80\x00\x00",
        b"\x22\x00",
        b"\x18\x00",
        b"\x1a\x03\x00\x00\x00",
        b"\x2a\x04\x32\x00\x32\x00",
        b"\x12\x03\x0a\x0a\x0a",
    ],
    ids=[
        "element",
        "tag of two bytes",
        "tag of four bytes",
        "map entry",
        "map entry, tag of four bytes",
        "message without fields",
        "number",
        "packed numbers",
        "elements in a message",
        "text that looks like elements",
    ],
)
def test_hostile_protobuf_payloads_have_at_most_so_many_cells(element: bytes) -> None:
    require_bounds(WIDE, [element * 1000, b"", element, element * 7])


@given(st.data())
def test_avro_payloads_have_at_most_so_many_cells(data: st.DataObject) -> None:
    schema = data.draw(schemas)
    decoder = valid_decoder(schema)
    require_bounds(decoder, data.draw(st.lists(avro_payloads(schema), max_size=5)))


def test_hostile_avro_payloads_have_at_most_so_many_cells() -> None:
    require_bounds(WIDE_AVRO, [_items(b"\0" * WIDTH, count) for count in (0, 1, 5_000)])


def _items(item: bytes, count: int) -> bytes:
    return (encode_long(count) + item * count if count else b"") + b"\0"


@pytest.mark.parametrize(
    ("decoder", "payload"),
    [(WIDE, b"\x0a\x00" * 1_000), (WIDE_AVRO, _items(b"\0" * WIDTH, 500))],
    ids=["protobuf", "Avro"],
)
def test_parts_are_bounded_whatever_their_payloads_are(
    decoder: Any, payload: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = MAX_CELLS // 100
    monkeypatch.setattr(cells, "MAX_CELLS", most)
    payloads = pa.array([payload] * 10, pa.binary())
    parts = parts_of(decoder, payloads)
    assert len(parts) > 1
    assert [row for part in parts for row in range(10)[part]] == [*range(10)]
    for part in parts:
        found = decoder.decode(payloads[part])
        assert not found.bad
        assert cells_of(found.columns.columns) <= most


def test_payload_with_more_cells_is_a_part_of_its_own() -> None:
    large, small = b"\x0a\x00" * 400_000, b"\x0a\x00"
    parts = parts_of(WIDE, pa.array([small, large, large, small, small], pa.binary()))
    assert [(part.start, part.stop) for part in parts] == [(0, 1), (1, 2), (2, 3), (3, 5)]


def test_ordinary_payloads_are_one_part() -> None:
    text = b"\x12\x64" + b"words of a text, 100 letters".ljust(100, b".")
    payload = text + b"\x0a\x02\x08\x01" * 3
    assert len(parts_of(WIDE, pa.array([payload] * 50_000, pa.binary()))) == 1
    assert parts_of(WIDE, pa.array([], pa.binary())) == [slice(0, 0)]
