"""Blocks of a file: the block reader agrees with the reference decoder or declines."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from headgate.formats.avro.batch_reader import BlockReader
from headgate.formats.avro.blocks import RecordBoundaries, split_block
from headgate.formats.avro.columns import root_record
from headgate.formats.avro.encoding import MalformedAvro
from headgate.formats.avro.schema import AvroSchema, parse_schema
from headgate.registry.registry import RefusedSchema
from tests.formats.avro.strategies import corrupted, payloads, schemas
from tests.formats.avro.test_batch import comparable, reference_values
from tests.formats.avro.writing import long_bytes, parsed, record, text_of, written

MAX_CELLS = 1 << 20


def valid_schema(definition: Any) -> AvroSchema:
    try:
        return parse_schema(text_of(definition))
    except RefusedSchema:
        assume(False)
        raise


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_record_boundaries_are_found(data: st.DataObject) -> None:
    definition = data.draw(schemas)
    schema = valid_schema(definition)
    whole = data.draw(st.lists(payloads(definition), min_size=1, max_size=4))
    block = b"".join(whole)
    ends, _ = RecordBoundaries(schema).find(block, len(whole), MAX_CELLS)
    assert split_block(block, ends).to_pylist() == whole
    reader = BlockReader.of(root_record(schema))
    found = None if reader is None else reader.read([block[:3], block[3:]], len(whole))
    if found is not None:
        found.validate(full=True)
        assert comparable(found) == comparable(reference_values(parsed(definition), whole))


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_corrupted_block_agrees_with_the_reference_decoder(
    data: st.DataObject,
) -> None:
    definition = data.draw(schemas)
    schema = valid_schema(definition)
    whole = [data.draw(payloads(definition)), data.draw(corrupted(data.draw(payloads(definition))))]
    block = b"".join(whole)
    reader = BlockReader.of(root_record(schema))
    found = None if reader is None else reader.read([block], 2)
    try:
        ends, _ = RecordBoundaries(schema).find(block, 2, MAX_CELLS)
    except MalformedAvro:
        assert found is None
        return
    if found is not None:
        parts: list[bytes] = split_block(block, ends).to_pylist()
        assert comparable(found) == comparable(reference_values(parsed(definition), parts))


DEFINITION = record(id="long", tags={"type": "array", "items": "string"})
ROWS = [{"id": at, "tags": ["x"] * at} for at in range(3)]
BLOCK = b"".join(written(DEFINITION, row) for row in ROWS)


@pytest.mark.parametrize("count", [0, 1, 2, 4, 100])
def test_block_with_a_wrong_count_is_not_read(count: int) -> None:
    schema = parse_schema(text_of(DEFINITION))
    reader = BlockReader.of(root_record(schema))
    assert reader is not None
    assert reader.read([BLOCK], count) is None
    assert len(reader.read([BLOCK], 3) or []) == 3
    with pytest.raises(MalformedAvro):
        RecordBoundaries(schema).find(BLOCK, count, MAX_CELLS)


def test_boundaries_do_not_depend_on_valid_values() -> None:
    definition = record(
        text="string",
        truth="boolean",
        color={"type": "enum", "name": "Color", "symbols": ["RED"]},
        map={"type": "map", "values": "int"},
        price={"type": "bytes", "logicalType": "decimal", "precision": 1},
    )
    odd = b"\x02\xff" + b"\x07" + long_bytes(9) + b"\x04\x02a\x00\x02a\x00\x00" + b"\x00"
    schema = parse_schema(text_of(definition))
    assert RecordBoundaries(schema).find(odd * 2, 2, MAX_CELLS)[0] == [len(odd), 2 * len(odd)]
    decoded = parsed(definition).decode(split_block(odd * 2, [len(odd), 2 * len(odd)]))
    assert list(decoded.bad) == [0, 1]


def test_values_in_arrays_are_counted() -> None:
    ends = RecordBoundaries(parse_schema(text_of(DEFINITION)))
    assert ends.find(BLOCK, 3, MAX_CELLS)[1] == 3
    with pytest.raises(MalformedAvro, match="more than 2 values"):
        ends.find(BLOCK, 3, 2)


def test_recursive_type_has_no_block_reader_but_boundaries() -> None:
    definition = record("Node", id="long", below={"type": "array", "items": "Node"})
    schema = parse_schema(text_of(definition))
    assert BlockReader.of(root_record(schema)) is None
    row = {"id": 1, "below": [{"id": 2, "below": []}]}
    one = written(definition, row)
    assert RecordBoundaries(schema).find(one * 2, 2, MAX_CELLS)[0] == [len(one), 2 * len(one)]
    assert isinstance(split_block(one, [len(one)]), pa.BinaryArray)
