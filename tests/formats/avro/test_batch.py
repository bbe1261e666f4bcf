"""The reader of whole batches: fast, and never of another opinion than the letter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from headgate.formats.avro import AvroDecoder
from headgate.registry.registry import RefusedSchema
from tests.formats.avro.strategies import payloads, schemas, spoiled
from tests.formats.avro.writing import decoded, parsed, record


def by_the_letter(decoder: AvroDecoder, whole: list[bytes]) -> pa.Array:
    return pa.array([decoder.reference.decode(payload) for payload in whole], decoder.decoded_type)


def at_once(decoder: AvroDecoder, whole: list[bytes]) -> pa.Array | None:
    assert decoder.batches is not None
    found = decoder.batches.read(pa.array(whole, pa.binary()))
    if found is not None:
        found.validate(full=True)
    return found


def told(values: pa.Array) -> list[Any]:
    """Comparable also for NaN, and for moments that Python's calendar does not have."""
    return [_told(value) for value in values]


def _told(value: pa.Scalar) -> Any:
    if not value.is_valid:
        return None
    if pa.types.is_struct(value.type):
        return [_told(value[at]) for at in range(value.type.num_fields)]
    if pa.types.is_nested(value.type):
        return told(value.values)
    return value.value if pa.types.is_temporal(value.type) else repr(value.as_py())


def some_decoder(schema: Any) -> AvroDecoder:
    try:
        return parsed(schema)
    except RefusedSchema:
        assume(False)
        raise


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_batch_is_read_as_each_of_its_records_is(data: st.DataObject) -> None:
    schema = data.draw(schemas)
    decoder = some_decoder(schema)
    whole = data.draw(st.lists(payloads(schema), min_size=1, max_size=4))
    expected = by_the_letter(decoder, whole)
    if decoder.batches is not None:
        found = at_once(decoder, whole)
        assert found is not None
        assert found.type.equals(expected.type)
        assert told(found) == told(expected)


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_spoiled_record_is_not_read_or_read_as_it_says(data: st.DataObject) -> None:
    schema = data.draw(schemas)
    decoder = some_decoder(schema)
    assume(decoder.batches is not None)
    whole = data.draw(st.lists(payloads(schema).flatmap(spoiled), min_size=1, max_size=3))
    found = at_once(decoder, whole)
    if found is not None:
        assert told(found) == told(by_the_letter(decoder, whole))


@given(st.data())
@settings(deadline=None, max_examples=25)
def test_record_is_decoded_alike_whatever_its_neighbours_are(data: st.DataObject) -> None:
    schema = data.draw(schemas)
    decoder = some_decoder(schema)
    good = data.draw(st.lists(payloads(schema), min_size=1, max_size=3))
    bad = data.draw(st.lists(st.sampled_from(good).flatmap(spoiled), max_size=3))
    mixed = pa.array([*good * 150, *bad, *good * 150, *bad], pa.binary())
    decoder = replace(decoder, min_batch_size=0)
    found, expected = decoder.decode(mixed), replace(decoder, batches=None).decode(mixed)
    assert found.bad == expected.bad
    for one, other in zip(found.columns.columns, expected.columns.columns, strict=True):
        assert told(one) == told(other)


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
def test_few_schemas_are_read_by_the_letter_alone(kind: Any) -> None:
    assert parsed(kind).batches is None


@pytest.mark.parametrize("kind", ["string", ["null", "int"], {"type": "map", "values": "null"}])
def test_types_that_are_no_records_are_read_in_batches_too(kind: Any) -> None:
    decoder = parsed(kind)
    assert at_once(decoder, [b"\0"] * 3) == by_the_letter(decoder, [b"\0"] * 3)


def test_two_branches_without_bytes_are_told_apart() -> None:
    schema = ["null", record("Empty"), record("Void"), "int"]
    rows = decoded(schema, b"\0", b"\2", b"\4", b"\6\x0a").columns.to_pylist()
    nothing = {"Empty": False, "Void": False, "int": None}
    assert [row["value"] for row in rows] == [
        None,
        {**nothing, "Empty": True},
        {**nothing, "Void": True},
        {**nothing, "int": 5},
    ]


def test_payload_that_reaches_into_the_next_one_is_found() -> None:
    decoder = parsed(record(a="bytes"))
    for reach in range(1, 30):
        assert at_once(decoder, [bytes([2 * reach]), b"\0" * reach, b"\0"]) is None


def test_payload_with_a_record_too_many_or_none_is_found() -> None:
    decoder = parsed(record(a="int"))
    assert at_once(decoder, [b"\2", b""]) is None
    assert at_once(decoder, [b"\2", b"\2" + bytes(8) + b"\2"]) is None
    assert at_once(decoder, [b"\2", b"\2" + bytes(9 * 100)]) is None


def test_more_than_fits_into_one_batch_is_not_tried() -> None:
    decoder = parsed(record(a={"type": "array", "items": ["null", record("R", b="int", c="int")]}))
    long = b"\x80\x80\x80\x0a" + bytes(10 << 20) + b"\0"
    assert at_once(decoder, [long]) is None
