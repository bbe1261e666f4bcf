"""Decoded columns against python-protobuf, for every kind of field there is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headgate.formats.protobuf import ProtobufDecoder
from headgate.formats.protobuf.descriptors import compile_proto
from headgate.formats.protobuf.reference import ProtobufReferenceDecoder, Validation
from headgate.formats.protobuf.wire import lengths_of
from tests.formats.protobuf.messages import MessageMaker
from tests.formats.protobuf.oracle import Unstorable, decoded, differences, expected


def _decoder(file: str, message: str, flip_packed: bool = False) -> ProtobufDecoder:
    text = Path(__file__).with_name(file).read_text("utf-8")
    files = compile_proto({file: text}, file)
    if flip_packed:
        for of in files.file[-1].message_type:
            for field in of.field:
                if field.label == 3 and field.type not in (9, 10, 11, 12):
                    packed = field.options.packed
                    if not field.options.HasField("packed"):
                        packed = files.file[-1].syntax == "proto3"
                    field.options.packed = not packed
    return ProtobufDecoder.for_message(files, f"everything.{message}")


THREE = _decoder("everything3.proto", "Everything")
TWO = _decoder("everything2.proto", "Everything2")
GROUPED = _decoder("everything2.proto", "Grouped")
FLIPPED = {
    THREE: _decoder("everything3.proto", "Everything", flip_packed=True),
    TWO: _decoder("everything2.proto", "Everything2", flip_packed=True),
}


def payloads_of(
    decoder: ProtobufDecoder, count: int, seed: int, share: float = 0.05
) -> list[bytes]:
    maker = MessageMaker(seed, share)
    return [
        maker.fill(decoder.message()).SerializePartialToString(deterministic=True)
        for _ in range(count)
    ]


def outcomes(decoder: ProtobufDecoder, payloads: list[bytes]) -> dict[int, dict[int, Any]]:
    """What python-protobuf says of each."""
    from google.protobuf.message import DecodeError

    rows = {}
    for at, payload in enumerate(payloads):
        try:
            rows[at] = expected(decoder.message.FromString(payload))
        except (DecodeError, Unstorable):
            continue
    return rows


@pytest.mark.parametrize(
    ("decoder", "count", "together"),
    [
        pytest.param(THREE, 1_000, 500, id="proto3"),
        pytest.param(THREE, 500, 25, id="proto3, few at once"),
        pytest.param(TWO, 1_500, 500, id="proto2"),
        pytest.param(TWO, 500, 25, id="proto2, few at once"),
        pytest.param(GROUPED, 500, 100, id="groups"),
        pytest.param(THREE, 10_000, 500, id="proto3, many", marks=pytest.mark.soak),
        pytest.param(TWO, 10_000, 500, id="proto2, many", marks=pytest.mark.soak),
    ],
)
def test_messages_are_what_python_protobuf_says(
    decoder: ProtobufDecoder, count: int, together: int
) -> None:
    for start in range(0, count, together):
        share = 0.4 if decoder is GROUPED else 0.05
        payloads = payloads_of(decoder, together, start + together, share)
        rows = outcomes(decoder, payloads)
        assert len(rows) == together
        assert differences(decoded(decoder, payloads), rows) == []


class NeverAsked(ProtobufReferenceDecoder):
    """Where ptars reads all exactly, python-protobuf has nothing to do."""

    def validate(self, payloads: pa.BinaryArray, rows: np.ndarray) -> Validation:
        assert rows.tolist() == []
        return super().validate(payloads, rows)


@pytest.mark.parametrize("decoder", [THREE, TWO], ids=["proto3", "proto2"])
def test_payloads_of_ordinary_writers_are_read_by_ptars_alone(decoder: ProtobufDecoder) -> None:
    assert decoder.fast is not None
    payloads = pa.array(payloads_of(decoder, 500, 5), pa.binary())
    never_asked = NeverAsked(decoder.reference.files, decoder.reference.name, decoder.columns)
    reading = replace(decoder.fast, reference=never_asked).read(
        payloads, lengths_of(payloads), np.arange(500)
    )
    assert reading.fallback.tolist() == []
    assert len(reading.rows) == 500


@pytest.mark.parametrize("decoder", [THREE, TWO], ids=["proto3", "proto2"])
def test_lists_of_numbers_are_read_in_either_encoding(decoder: ProtobufDecoder) -> None:
    payloads = payloads_of(decoder, 300, 1, share=0.2)
    flipped = FLIPPED[decoder].message
    others = [flipped.FromString(one).SerializePartialToString() for one in payloads]
    assert others != payloads
    assert differences(decoded(decoder, others), outcomes(decoder, payloads)) == []


@pytest.mark.parametrize("decoder", [THREE, TWO, GROUPED], ids=["proto3", "proto2", "groups"])
def test_messages_that_come_in_parts_are_merged(decoder: ProtobufDecoder) -> None:
    payloads = payloads_of(decoder, 900, 2, share=0.1)
    parts = [b"".join(payloads[at : at + 3]) for at in range(0, 900, 3)]
    assert differences(decoded(decoder, parts), outcomes(decoder, parts)) == []


@pytest.mark.parametrize("decoder", [THREE, TWO, GROUPED], ids=["proto3", "proto2", "groups"])
def test_damaged_payloads_are_bad_where_python_protobuf_refuses_them(
    decoder: ProtobufDecoder,
) -> None:
    random = Random(3)
    payloads = [damaged(one, random) for one in payloads_of(decoder, 1_000, 4, share=0.05)]
    rows = outcomes(decoder, payloads)
    assert 100 < len(rows) < 900
    assert differences(decoded(decoder, payloads), rows) == []
    for start in range(0, 100, 10):
        few = decoded(decoder, payloads[start : start + 10])
        assert differences({start + at: row for at, row in few.items()}, some_of(rows, start)) == []


def some_of(rows: dict[int, dict[int, Any]], start: int) -> dict[int, dict[int, Any]]:
    return {at: rows[at] for at in range(start, start + 10) if at in rows}


def damaged(payload: bytes, random: Random) -> bytes:
    at = random.randrange(len(payload) + 1)
    length = random.choice([1, 1, 1, 2, 5])
    junk = bytes(
        random.choice([0x00, 0x01, 0x7F, 0x80, 0xFF, random.randrange(256)]) for _ in range(length)
    )
    return random.choice(
        [
            payload[:at],
            payload[:at] + junk + payload[at:],
            payload[:at] + junk + payload[at + length :],
            payload[:at] + payload[at + length :],
            payload[:at] + payload[at : at + length] * 2 + payload[at + length :],
        ]
    )
