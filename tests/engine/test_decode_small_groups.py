from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.engine.stage_table import decode_small_groups
from headgate.envelopes.opened import Group
from headgate.formats.decoders import Decoders
from headgate.formats.protobuf import ProtobufDecoder
from headgate.registry.registry import SchemaKey, SchemaText

TEXTS = [
    "message Move { int32 x = 1; Side side = 2; repeated string to = 3; map<string, int64> m = 4; "
    "Inner inner = 5; } enum Side { A = 0; B = 1; } message Inner { optional bool ok = 1; }",
    "message Shot { int32 y = 1; Side team = 2; repeated string at = 3; map<string, int64> m = 4; "
    "Inner within = 5; } enum Side { A = 0; B = 1; } message Inner { optional bool ok = 1; }",
    "message Shot { int32 y = 1; Side team = 2; repeated string at = 3; map<string, int64> m = 4; "
    "Inner within = 5; } enum Side { A = 0; C = 1; } message Inner { optional bool ok = 1; }",
]
BAD = b"\xff"
UNKNOWN_FIELD = b"\x7a\x01a"


class Registry:
    def fetch(self, key: SchemaKey) -> SchemaText:
        return SchemaText("PROTOBUF", f'syntax = "proto3";\n{TEXTS[int(key)]}')


DECODERS = Decoders(Registry())  # type: ignore[arg-type]


def decoder(key: int) -> ProtobufDecoder:
    found = DECODERS.decoder(key)
    assert isinstance(found, ProtobufDecoder)
    return found


def group(key: int, route: str, payloads: list[bytes]) -> Group:
    rows = np.arange(len(payloads))
    return Group(route, (key, (0,)), rows, pa.array(payloads, pa.binary()), rows)


def payload(number: int, words: list[str]) -> bytes:
    """Field numbers count, not names: the same bytes for all schemas."""
    inner = {"ok": number % 3 == 0} if number % 2 else None
    message: Any = decoder(0).message(
        x=number, side=number % 2, to=words, m=dict.fromkeys(words, 7), inner=inner
    )
    written: bytes = message.SerializeToString()
    return written


PAYLOADS = st.lists(
    st.builds(payload, st.integers(-3, 300), st.lists(st.sampled_from(["a", "bc"]), unique=True)),
    min_size=1,
    max_size=8,
)


@given(st.lists(st.tuples(st.integers(0, 2), PAYLOADS), max_size=8))
@settings(deadline=None, max_examples=60)
def test_groups_decode_together_as_they_do_alone(made: list[tuple[int, list[bytes]]]) -> None:
    groups = [group(key, f"route {at}", payloads) for at, (key, payloads) in enumerate(made)]
    found = decode_small_groups(groups, DECODERS)
    for one in groups:
        alone = decoder(int(one.message[0])).decode(one.payloads)
        ahead = found.get(one, alone)
        assert ahead.columns.schema.equals(alone.columns.schema, check_metadata=True)
        assert ahead.columns.to_pylist() == alone.columns.to_pylist()
        assert (ahead.bad, list(ahead.unknown)) == ({}, [])


def test_schemas_that_differ_in_the_names_of_columns_are_decoded_together() -> None:
    groups = [group(key, "games", [payload(5, ["a"])]) for key in range(3)]
    assert list(decode_small_groups(groups, DECODERS)) == groups[:2]


@pytest.mark.parametrize("odd", [BAD, payload(1, []) + UNKNOWN_FIELD, payload(1, []) * 2])
def test_groups_with_an_inexact_payload_are_left_out(odd: bytes) -> None:
    groups = [group(0, "chess", [payload(5, ["a"])]), group(1, "go", [odd])]
    assert not decode_small_groups(groups, DECODERS)
