"""The batch reader agrees with the reference decoder or declines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from headgate.formats.avro import AvroDecoder
from headgate.formats.avro.encoding import Cursor
from headgate.registry.registry import RefusedSchema
from tests.formats.avro.strategies import corrupted, payloads, schemas
from tests.formats.avro.writing import decoded, parsed, record


def reference_values(decoder: AvroDecoder, whole: list[bytes]) -> pa.Array:
    return pa.array(
        [decoder.reference.decode(Cursor(payload)) for payload in whole], decoder.decoded_type
    )


def batch_values(decoder: AvroDecoder, whole: list[bytes]) -> pa.Array | None:
    assert decoder.batches is not None
    found = decoder.batches.read(pa.array(whole, pa.binary()))
    if found is not None:
        found.validate(full=True)
    return found


def comparable(values: pa.Array) -> list[Any]:
    """Return values that compare equal even for NaN and timestamps beyond Python's range."""
    return [_comparable(value) for value in values]


def _comparable(value: pa.Scalar) -> Any:
    if not value.is_valid:
        return None
    if pa.types.is_struct(value.type):
        return [_comparable(value[at]) for at in range(value.type.num_fields)]
    if pa.types.is_nested(value.type):
        return comparable(value.values)
    return value.value if pa.types.is_temporal(value.type) else repr(value.as_py())


def valid_decoder(schema: Any) -> AvroDecoder:
    try:
        return parsed(schema)
    except RefusedSchema:
        assume(False)
        raise


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_batch_agrees_with_the_reference_decoder(data: st.DataObject) -> None:
    schema = data.draw(schemas)
    decoder = valid_decoder(schema)
    whole = data.draw(st.lists(payloads(schema), min_size=1, max_size=4))
    expected = reference_values(decoder, whole)
    if decoder.batches is not None:
        found = batch_values(decoder, whole)
        assert found is not None
        assert found.type.equals(expected.type)
        assert comparable(found) == comparable(expected)


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_corrupted_batch_agrees_with_the_reference_decoder(data: st.DataObject) -> None:
    schema = data.draw(schemas)
    decoder = valid_decoder(schema)
    assume(decoder.batches is not None)
    whole = data.draw(st.lists(payloads(schema).flatmap(corrupted), min_size=1, max_size=3))
    found = batch_values(decoder, whole)
    if found is not None:
        assert comparable(found) == comparable(reference_values(decoder, whole))


@given(st.data())
@settings(deadline=None, max_examples=25)
def test_record_does_not_depend_on_its_neighbours(data: st.DataObject) -> None:
    schema = data.draw(schemas)
    decoder = valid_decoder(schema)
    good = data.draw(st.lists(payloads(schema), min_size=1, max_size=3))
    bad = data.draw(st.lists(st.sampled_from(good).flatmap(corrupted), max_size=3))
    mixed = pa.array([*good * 150, *bad, *good * 150, *bad], pa.binary())
    decoder = replace(decoder, min_batch_size=0)
    found, expected = decoder.decode(mixed), replace(decoder, batches=None).decode(mixed)
    assert found.bad == expected.bad
    for one, other in zip(found.columns.columns, expected.columns.columns, strict=True):
        assert comparable(one) == comparable(other)


@pytest.mark.parametrize(
    "kind",
    [
        record("Node", me=["null", "Node"]),
        record("Nothing", a="null"),
        ["null", record("Empty")],
        [record(f"T{at}", a="int") for at in range(101)],
    ],
    ids=["leads back", "no bytes", "two without bytes", "many branches"],
)
def test_some_schemas_need_the_reference_decoder(kind: Any) -> None:
    assert parsed(kind).batches is None


@pytest.mark.parametrize("kind", ["string", ["null", "int"], {"type": "map", "values": "null"}])
def test_types_that_are_not_records_are_read_in_batches(kind: Any) -> None:
    decoder = parsed(kind)
    assert batch_values(decoder, [b"\0"] * 3) == reference_values(decoder, [b"\0"] * 3)


def test_two_zero_size_branches_are_distinguished() -> None:
    schema = ["null", record("Empty"), record("Void"), "int"]
    rows = decoded(schema, b"\0", b"\2", b"\4", b"\6\x0a").columns.to_pylist()
    nothing = {"Empty": False, "Void": False, "int": None}
    assert [row["value"] for row in rows] == [
        None,
        {**nothing, "Empty": True},
        {**nothing, "Void": True},
        {**nothing, "int": 5},
    ]


def test_payload_that_reaches_into_the_next_is_detected() -> None:
    decoder = parsed(record(a="bytes"))
    for reach in range(1, 30):
        assert batch_values(decoder, [bytes([2 * reach]), b"\0" * reach, b"\0"]) is None


def test_payload_with_no_or_two_records_is_detected() -> None:
    decoder = parsed(record(a="int"))
    assert batch_values(decoder, [b"\2", b""]) is None
    assert batch_values(decoder, [b"\2", b"\2" + bytes(8) + b"\2"]) is None
    assert batch_values(decoder, [b"\2", b"\2" + bytes(9 * 100)]) is None


def test_too_large_batch_is_not_read() -> None:
    decoder = parsed(record(a={"type": "array", "items": ["null", record("R", b="int", c="int")]}))
    long = b"\x80\x80\x80\x0a" + bytes(10 << 20) + b"\0"
    assert batch_values(decoder, [long]) is None
