"""Every type, compared with what fastavro reads from the same bytes."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa

from headgate.formats.avro import AvroDecoder
from tests.formats.avro.random_values import EVERYTHING, NAMED, TREE, RandomValues
from tests.formats.avro.writing import parsed

MESSAGES = 10_000


def stored(kind: Any, value: Any) -> Any:
    """Convert what fastavro read to the value in a column."""
    if isinstance(kind, str) and kind in NAMED:
        return stored(NAMED[kind], value)
    if isinstance(kind, list):
        return branch(kind, value)
    if isinstance(kind, str):
        return value
    if kind["type"] == "record":
        inside = {one["name"]: stored(one["type"], value[one["name"]]) for one in kind["fields"]}
        return inside or True
    if kind["type"] == "array":
        return [stored(kind["items"], one) for one in value]
    if kind["type"] == "map":
        return [(key, stored(kind["values"], one)) for key, one in value.items()]
    name = kind.get("logicalType", "")
    if isinstance(value, time):
        since = timedelta(hours=value.hour, minutes=value.minute, seconds=value.second)
        return since // timedelta(microseconds=1) + value.microsecond
    if isinstance(value, UUID) or (name == "uuid" and kind["type"] == "fixed"):
        return str(value if isinstance(value, UUID) else UUID(bytes=value))
    if name == "duration":
        parts = [int.from_bytes(value[at : at + 4], "little") for at in (0, 4, 8)]
        return dict(zip(("months", "days", "millis"), parts, strict=True))
    if isinstance(value, Decimal) and kind["precision"] > 38:
        return format(value, "f")
    return value


WORDS: dict[type, str] = {
    bool: "boolean",
    int: "long",
    float: "double",
    str: "string",
    bytes: "bytes",
    list: "array",
    dict: "map",
}


def word(kind: Any) -> str:
    if isinstance(kind, str):
        return kind.rpartition(".")[2]
    return str(kind.get("name", kind["type"])).rpartition(".")[2]


def branch(kind: list[Any], value: Any) -> Any:
    others = [one for one in kind if one != "null"]
    if len(others) == 1:
        if value is None:
            return None
        return stored(others[0], value[1] if isinstance(value, tuple) else value)
    if value is None:
        return None
    name, inside = value if isinstance(value, tuple) else (WORDS[type(value)], value)
    [chosen] = [one for one in others if word(one) == name.rpartition(".")[2]]
    fields: dict[str, Any] = {word(one): None for one in others}
    if "Empty" in fields:
        fields["Empty"] = False  # Of a record without fields, a column says whether it is there.
    return {**fields, word(chosen): stored(chosen, inside)}


def both(schema: Any, seed: int, messages: int) -> tuple[AvroDecoder, pa.Array, list[Any]]:
    """Return a decoder, payloads written by fastavro, and their values read by fastavro."""
    chance, writer = RandomValues(seed), fastavro.parse_schema(schema)
    payloads, expected = [], []
    for _ in range(messages):
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, writer, chance.value(schema))
        payloads.append(stream.getvalue())
        stream.seek(0)
        row = fastavro.schemaless_reader(stream, writer, None, return_named_type=True)
        expected.append(row)
    return parsed(schema), pa.array(payloads, pa.binary()), expected


def test_every_type_agrees_with_fastavro() -> None:
    decoder, payloads, expected = both(EVERYTHING, 1, MESSAGES)
    assert decoder.batches is not None
    assert decoder.batches.read(payloads) is not None
    result = decoder.decode(payloads)
    assert result.bad == {}
    result.columns.validate(full=True)
    for found, wanted in zip(result.columns.to_pylist(), expected, strict=True):
        assert found == stored(EVERYTHING, wanted)


def test_recursive_records_agree_with_fastavro() -> None:
    decoder, payloads, expected = both(TREE, 2, 1_000)
    result = decoder.decode(payloads)
    assert result.bad == {}
    deepest = 0
    for found, wanted in zip(result.columns.to_pylist(), expected, strict=True):
        for name in ("children", "named", "other"):
            text = found.pop(name)
            deepest = max(deepest, (text or "").count("children"))
            value = in_text({name: wanted.pop(name)})[name]
            assert (text and json.loads(text)) == value
        assert found == wanted
    assert deepest > 10


def in_text(value: Any) -> Any:
    """Convert a tree that fastavro read to its JSON value."""
    match value:
        case dict():
            return {
                name: choice(one) if name == "other" else in_text(one)
                for name, one in value.items()
            }
        case list():
            return [in_text(one) for one in value]
        case datetime():
            return (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        case float() if abs(value) == float("inf"):
            return "Infinity" if value > 0 else "-Infinity"
        case _:
            return choice(value) if isinstance(value, tuple) else value


def choice(value: Any) -> Any:
    if isinstance(value, tuple):
        return {value[0]: in_text(value[1])}
    return None if value is None else {"long": value}
