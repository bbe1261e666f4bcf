"""What a row must be, worked out from python-protobuf's objects alone."""

from __future__ import annotations

import math
from datetime import UTC
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor as Kind
from google.protobuf.json_format import MessageToJson

from headgate.formats.protobuf import ProtobufDecoder

JSON = {"google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"}
UNSIGNED = {Kind.TYPE_UINT64, Kind.TYPE_FIXED64}


class Unstorable(Exception):
    """Protobuf can carry it, no column can hold it."""


def expected(message: Any, around: tuple[str, ...] = ()) -> dict[int, Any]:
    """Values by field number."""
    descriptor = message.DESCRIPTOR
    inside = (*around, descriptor.full_name)
    row: dict[int, Any] = {}
    for field in descriptor.fields:
        value = getattr(message, field.name)
        if _is_map(field):
            key, item = (field.message_type.fields_by_name[name] for name in ("key", "value"))
            try:
                entries = dict(value.items())
            except UnicodeDecodeError:
                raise Unstorable from None
            row[field.number] = {
                _one(key, each, inside): _one(item, entries[each], inside) for each in entries
            }
        elif field.is_repeated:
            row[field.number] = [_one(field, each, inside) for each in value]
        elif field.has_presence and not message.HasField(field.name):
            empty = field.message_type is not None and not field.message_type.fields
            row[field.number] = False if empty else None
        else:
            row[field.number] = _one(field, value, inside)
    return row


@cache
def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _one(field: Any, value: Any, around: tuple[str, ...]) -> Any:
    if field.type == Kind.TYPE_ENUM:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known else str(value)
    if field.message_type is not None:
        return _message(field.message_type, value, around)
    if field.type == Kind.TYPE_STRING and not isinstance(value, str):
        raise Unstorable
    if field.type in UNSIGNED:
        return Decimal(value)
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def _message(of: Any, value: Any, around: tuple[str, ...]) -> Any:
    name = of.full_name
    if name in JSON or name in around:
        return _json(value)
    if not of.fields:
        return True
    if name == "google.protobuf.Timestamp":
        try:
            value.ToJsonString()
        except ValueError:
            raise Unstorable from None
        return value.ToDatetime(UTC)
    if name == "google.protobuf.Duration":
        micros = value.ToMicroseconds()
        if not -(2**63) <= micros < 2**63:
            raise Unstorable
        return micros
    if name.startswith("google.protobuf.") and name.endswith("Value"):
        return _one(of.fields[0], value.value, around)
    return expected(value, around)


def _json(message: Any) -> str:
    try:
        text = MessageToJson(
            message,
            preserving_proto_field_name=True,
            indent=None,
            sort_keys=True,
            ensure_ascii=False,
        )
    except Exception:
        raise Unstorable from None
    # The printer writes a string of proto2 that is not UTF-8 as Python shows bytes.
    if '"b' in text:
        _refuse_bytes_for_text(message)
    return text


def _refuse_bytes_for_text(message: Any) -> None:
    for field, value in message.ListFields():
        of = field.message_type.fields_by_name["value"] if _is_map(field) else field
        values = value.values() if _is_map(field) else value if field.is_repeated else [value]
        for each in values:
            if of.message_type is not None:
                _refuse_bytes_for_text(each)
            elif of.type == Kind.TYPE_STRING and isinstance(each, bytes):
                raise Unstorable


def decoded(decoder: ProtobufDecoder, payloads: list[bytes]) -> dict[int, dict[int, Any]]:
    """What the decoder makes of payloads: values by field number, by position; not the bad ones."""
    result = decoder.decode(pa.array(payloads, pa.binary()))
    result.columns.validate(full=True)
    assert result.columns.schema.equals(decoder.schema, check_metadata=True)
    assert all(result.bad.values())
    good = [at for at in range(len(payloads)) if at not in result.bad]
    numbers = [_number(field) for field in decoder.schema]
    columns = [
        _values(column, field.type)
        for field, column in zip(decoder.schema, result.columns, strict=True)
    ]
    rows = (dict(zip(numbers, row, strict=True)) for row in zip(*columns, strict=True))
    return dict(zip(good, rows, strict=True))


def _values(column: pa.Array, kind: pa.DataType) -> list[Any]:
    """Python's values; most lists and messages are empty, and reading those takes its time."""
    if not pa.types.is_nested(kind):
        return [_by_number(value, kind) for value in column.to_pylist()]
    if pa.types.is_struct(kind):
        rows = np.flatnonzero(column.is_valid())
    else:
        assert column.null_count == 0
        rows = np.flatnonzero(np.diff(column.offsets))
    empty: Any = None if pa.types.is_struct(kind) else {} if pa.types.is_map(kind) else []
    values: list[Any] = [empty] * len(column)
    for row, value in zip(rows, column.take(pa.array(rows)).to_pylist(), strict=True):
        values[row] = _by_number(value, kind)
    return values


def _number(field: pa.Field) -> int:
    return int(field.metadata[b"headgate.number"])


def _by_number(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_map(kind):
        made = {each: _by_number(item, kind.item_type) for each, item in value}
        assert len(made) == len(value)
        return made
    if pa.types.is_list(kind):
        return [_by_number(each, kind.value_type) for each in value]
    if pa.types.is_struct(kind):
        return {_number(field): _by_number(value[field.name], field.type) for field in kind}
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def differences(got: Any, wanted: Any, path: str = "") -> list[str]:
    """Where two nested values differ: a few hundred columns are too many to read."""
    if isinstance(got, dict) and isinstance(wanted, dict) and got.keys() == wanted.keys():
        return [
            found
            for key, value in got.items()
            for found in differences(value, wanted[key], f"{path}.{key}")
        ]
    if isinstance(got, dict) and isinstance(wanted, dict) and not path:
        return [f"bad or not: {sorted(got.keys() ^ wanted.keys())}"]
    same = got == wanted and type(got) is type(wanted)
    return [] if same else [f"{path}: {got!r:.300} is not {wanted!r:.300}"]
