"""What the schema of an Avro file says of the changes in it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from headgate.envelope.datastream.opened_file import UnreadableFile
from headgate.envelope.datastream.payload_columns import PayloadColumns, record_inside
from headgate.schema.avro.blocks import BlockReader, RecordEnds
from headgate.schema.avro.columns import root_record
from headgate.schema.avro.decoder import AvroDecoder
from headgate.schema.avro.kinds import Record
from headgate.schema.avro.schema import parse_schema
from headgate.schema.avro.size import places
from headgate.schema.registry import RefusedSchema, SchemaText

_MEANING = ("logicalType", "precision", "scale")


@dataclass(frozen=True)
class ChangeSchema:
    """How records of one schema are read and taken apart."""

    record: Record
    blocks: BlockReader | None
    ends: RecordEnds
    decoder: AvroDecoder
    """For records that cannot be read as a whole block."""
    payload: PayloadColumns
    cells: int
    """So many values has a record in memory, be it as short as can be."""
    fields_mean: bool
    """Whether the logical types of some values stand on their fields."""


@lru_cache(maxsize=512)
def change_schema(text: bytes, as_written: bool = False) -> ChangeSchema:
    """The schema of a file; UnreadableFile if it is none of changes.

    As it is written, a logical type on a field means nothing: so Avro has it.
    """
    try:
        written = json.loads(text)
        said = written if as_written else _with_meaning_in_types(written)
        schema = parse_schema(SchemaText("AVRO", json.dumps(said)))
        record = root_record(schema)
        payload = _payload(record)
        return ChangeSchema(
            record=record,
            blocks=BlockReader.of(record),
            ends=RecordEnds(schema),
            decoder=AvroDecoder.of(schema),
            payload=PayloadColumns.of(payload),
            cells=places(record),
            fields_mean=said != written,
        )
    except (RefusedSchema, ValueError, RecursionError) as error:
        raise UnreadableFile(f"its schema cannot be used: {error}"[:500]) from None


def _payload(record: Record) -> Record:
    """A file whose records cannot have a table and a row is something else."""
    parts = {one.name: record_inside(one.type) for one in record.fields}
    source, payload = parts.get("source_metadata"), parts.get("payload")
    if source is None or not any(one.name == "table" for one in source.fields):
        raise UnreadableFile("its records have no `source_metadata` with a `table`")
    if payload is None:
        raise UnreadableFile("its records have no `payload` that is a record")
    return payload


def _with_meaning_in_types(said: Any) -> Any:
    """The schema with each logical type on its type, where some writers put it on the field."""
    match said:
        case list():
            return [_with_meaning_in_types(one) for one in said]
        case dict():
            moved = {key: _with_meaning_in_types(value) for key, value in said.items()}
            if isinstance(moved.get("fields"), list):
                moved["fields"] = [_field(one) for one in moved["fields"]]
            return moved
        case _:
            return said


def _field(said: Any) -> Any:
    if not isinstance(said, dict) or "logicalType" not in said:
        return said
    meaning = {key: said[key] for key in _MEANING if key in said}
    return {**said, "type": _with_meaning(said.get("type"), meaning)}


def _with_meaning(kind: Any, meaning: dict[str, Any]) -> Any:
    match kind:
        case str() if kind != "null":
            return {"type": kind, **meaning}
        case list():
            return [_with_meaning(one, meaning) for one in kind]
        case dict() if "logicalType" not in kind:
            return {**kind, **meaning}
        case _:
            return kind
