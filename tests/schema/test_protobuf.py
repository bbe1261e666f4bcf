from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.schema.protobuf import NoSuchMessage, ProtobufDecoder
from headgate.schema.registry import RefusedSchema, SchemaText

HEAD = 'syntax = "proto3";\n'

SCALARS = {
    "double": st.floats(allow_nan=False),
    "float": st.floats(width=32, allow_nan=False),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "uint64": st.integers(0, 2**64 - 1),
    "sint32": st.integers(-(2**31), 2**31 - 1),
    "sint64": st.integers(-(2**63), 2**63 - 1),
    "fixed32": st.integers(0, 2**32 - 1),
    "fixed64": st.integers(0, 2**64 - 1),
    "sfixed32": st.integers(-(2**31), 2**31 - 1),
    "sfixed64": st.integers(-(2**63), 2**63 - 1),
    "bool": st.booleans(),
    "string": st.text(max_size=5),
    "bytes": st.binary(max_size=5),
}
KEYS = [kind for kind in SCALARS if kind not in ("double", "float", "bytes")]


def _everything() -> str:
    lines, number = [], 0

    def add(line: str) -> None:
        nonlocal number
        number += 1
        lines.append(f"  {line} = {number};\n")

    for kind in SCALARS:
        add(f"{kind} plain_{kind}")
        add(f"optional {kind} maybe_{kind}")
        add(f"repeated {kind} many_{kind}")
    for kind in KEYS:
        add(f"map<{kind}, Inner> by_{kind}")
    add("Color color")
    add("repeated Color colors")
    add("Inner inner")
    add("repeated Inner inners")
    add("google.protobuf.Timestamp at")
    add("repeated google.protobuf.Timestamp often")
    lines.append("  oneof choice {\n")
    for kind in ("string", "uint64", "Inner"):
        add(f"  {kind} choice_{kind.lower()}")
    lines.append("  }\n")
    return (
        HEAD + 'import "google/protobuf/timestamp.proto";\n'
        "enum Color { RED = 0; GREEN = 1; BLUE = 7; }\n"
        f"message Everything {{\n{''.join(lines)}}}\n"
        "message Inner { uint64 id = 1; optional string name = 2; }\n"
    )


EVERYTHING = ProtobufDecoder.compile(SchemaText("PROTOBUF", _everything()), (0,))


def decoder(text: str, message: tuple[int, ...] = (0,), **references: str) -> ProtobufDecoder:
    named = tuple((f"{name}.proto", HEAD + one) for name, one in references.items())
    return ProtobufDecoder.compile(SchemaText("PROTOBUF", HEAD + text, named), message)


def inner(row: Any) -> dict[str, Any]:
    return {"id": row.id, "name": row.name if row.HasField("name") else None}


def expected(row: Any) -> dict[str, Any]:
    """The row that python-protobuf's message stands for."""
    columns: dict[str, Any] = {}
    for field in row.DESCRIPTOR.fields:
        value = getattr(row, field.name)
        if field.has_presence and not row.HasField(field.name):
            columns[field.name] = None
        elif field.name.startswith("by_"):
            columns[field.name] = {key: inner(one) for key, one in value.items()}
        elif field.name == "often":
            columns[field.name] = [one.ToDatetime(UTC) for one in value]
        elif field.message_type is None:
            columns[field.name] = list(value) if field.is_repeated else value
        elif field.message_type.name == "Timestamp":
            columns[field.name] = value.ToDatetime(UTC)
        else:
            columns[field.name] = (
                [inner(one) for one in value] if field.is_repeated else inner(value)
            )
    return columns


def decoded(payloads: list[bytes]) -> list[dict[str, Any]]:
    result = EVERYTHING.decode(pa.array(payloads, pa.binary()))
    assert result.bad == {}
    rows = result.columns.to_pylist()
    for row in rows:
        row.update({name: dict(value) for name, value in row.items() if name.startswith("by_")})
    return list(rows)


@st.composite
def messages(draw: st.DrawFn) -> Any:
    row = EVERYTHING.message()
    inners = st.tuples(st.integers(0, 2**64 - 1), st.none() | st.text(max_size=3))

    def fill(target: Any, values: tuple[int, str | None]) -> None:
        target.id = values[0]
        if values[1] is not None:
            target.name = values[1]

    fields = [field for field in row.DESCRIPTOR.fields if draw(st.booleans())]
    for field in fields:
        kind, name = field.name.split("_")[-1], field.name
        if name.startswith("by_"):
            for key in draw(st.lists(SCALARS[kind], max_size=2)):
                fill(getattr(row, name)[key], draw(inners))
        elif name.startswith("many_"):
            getattr(row, name).extend(draw(st.lists(SCALARS[kind], max_size=3)))
        elif name == "color":
            row.color = draw(st.integers(-3, 9))
        elif name == "colors":
            row.colors.extend(draw(st.lists(st.integers(0, 9), max_size=3)))
        elif name == "inners":
            for values in draw(st.lists(inners, max_size=2)):
                fill(row.inners.add(), values)
        elif name in ("inner", "choice_inner"):
            fill(getattr(row, name), draw(inners))
            getattr(row, name).SetInParent()
        elif name in ("at", "often"):
            moment = draw(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)))
            (row.at if name == "at" else row.often.add()).FromDatetime(moment)
        else:
            setattr(row, name, draw(SCALARS[kind]))
    return row


@given(st.lists(messages(), max_size=4))
@settings(deadline=None, max_examples=60)
def test_values_are_those_of_python_protobuf(rows: list[Any]) -> None:
    assert decoded([row.SerializeToString() for row in rows]) == [expected(row) for row in rows]


def test_every_column_may_be_null_and_can_be_stored() -> None:
    assert all(field.nullable for field in EVERYTHING.schema)
    assert EVERYTHING.schema.field("plain_uint64").type == pa.decimal128(20, 0)
    assert EVERYTHING.schema.field("plain_fixed32").type == pa.int64()
    assert EVERYTHING.schema.field("color").type == pa.int32()
    assert EVERYTHING.schema.field("at").type == pa.timestamp("us", "UTC")


def test_largest_unsigned_numbers_are_kept() -> None:
    [row] = decoded(
        [EVERYTHING.message(plain_uint64=2**64 - 1, many_fixed32=[2**32 - 1]).SerializeToString()]
    )
    assert row["plain_uint64"] == Decimal(2**64 - 1)
    assert row["many_fixed32"] == [2**32 - 1]


POINT = decoder("message Point { int32 x = 1; string label = 2; }")
BAD = [
    b"\xff",
    b"\x08",
    b"\x12\x05ab",
    b"\x12\x01\xff",
    b"\x00",
    b"\x0b",
    b"\x0a\xff\xff\xff\xff\x0f",
]


def point(number: int) -> bytes:
    payload: bytes = POINT.message(x=number, label="ok").SerializeToString()
    return payload


@given(st.lists(st.none() | st.sampled_from(BAD), max_size=40))
@settings(deadline=None, max_examples=60)
@example([])
@example([BAD[0]])
@example([None] * 40)
def test_bad_records_are_found_wherever_they_stand(spoiled: list[bytes | None]) -> None:
    payloads = [point(at) if bad is None else bad for at, bad in enumerate(spoiled)]
    result = POINT.decode(pa.array(payloads, pa.binary()))
    good = [at for at, bad in enumerate(spoiled) if bad is None]
    assert sorted(result.bad) == [at for at, bad in enumerate(spoiled) if bad is not None]
    assert all(result.bad.values())
    assert result.columns.column("x").to_pylist() == good
    assert result.columns.schema == POINT.schema


def test_part_of_an_array_is_decoded_by_itself() -> None:
    payloads = pa.array([b"\xff", point(1), b"\xff", point(3), point(4)], pa.binary())
    result = POINT.decode(payloads.slice(1, 3))
    assert result.columns.column("x").to_pylist() == [1, 3]
    assert list(result.bad) == [1]


def test_groups_without_end_do_not_overflow_the_stack() -> None:
    endless, closed = b"\x7b" * 1_000_000, b"\x7b" * 500_000 + b"\x7c" * 500_000
    result = POINT.decode(pa.array([point(0), endless, closed, point(3)], pa.binary()))
    assert list(result.bad) == [1, 2]
    assert result.columns.column("x").to_pylist() == [0, 3]


def test_long_payload_is_decoded() -> None:
    long = POINT.message(x=1, label="x" * 1_000_000).SerializeToString()
    result = POINT.decode(pa.array([long], pa.binary()))
    assert result.columns.column("label").to_pylist() == ["x" * 1_000_000]


def test_record_with_fields_that_the_schema_lacks_is_decoded() -> None:
    result = POINT.decode(pa.array([point(1) + b"\x78\x01"], pa.binary()))
    assert result.columns.to_pylist() == [{"x": 1, "label": "ok"}]


def test_message_without_fields_gives_a_row_without_columns() -> None:
    result = decoder("message Empty {}").decode(pa.array([b"", b"\xff", b""], pa.binary()))
    assert (result.columns.num_rows, result.columns.num_columns) == (2, 0)
    assert list(result.bad) == [1]


def test_recursive_message_is_kept_as_bytes() -> None:
    tree = decoder("message Tree { string name = 1; Tree left = 2; }")
    payload = b"\x0a\x01a\x12\x03\x0a\x01b"
    [row] = tree.decode(pa.array([payload], pa.binary())).columns.to_pylist()
    assert row == {"name": "a", "left": b"\x0a\x01b"}


def test_fields_called_like_metadata_columns_get_names_of_their_own() -> None:
    assert decoder("message M { string _topic = 1; }").schema.names[0].startswith("_topic__")


def test_second_of_two_case_twins_gets_a_name_of_its_own() -> None:
    text = 'syntax = "proto2"; message M { optional int32 userId = 1; optional int32 userid = 2; }'
    first, second = ProtobufDecoder.compile(SchemaText("PROTOBUF", text), (0,)).schema.names
    assert first == "userId"
    assert second.startswith("userid__")


SEVERAL = "package a.b; message One {} message Two { message In { message Deep {} } message At {} }"


@pytest.mark.parametrize(
    ("index", "name"),
    [
        ((0,), "a.b.One"),
        ((1,), "a.b.Two"),
        ((1, 1), "a.b.Two.At"),
        ((1, 0), "a.b.Two.In"),
        ((1, 0, 0), "a.b.Two.In.Deep"),
    ],
)
def test_message_index_names_a_message(index: tuple[int, ...], name: str) -> None:
    assert decoder(SEVERAL, index).record_name == name


@pytest.mark.parametrize("index", [(2,), (0, 0), (1, 0, 0, 0), (1, 2), (2**31 - 1,), (-1,)])
def test_message_index_out_of_range_is_refused(index: tuple[int, ...]) -> None:
    with pytest.raises(NoSuchMessage, match="no message at index"):
        decoder(SEVERAL, index)


def test_schema_without_a_message_has_no_first_one() -> None:
    with pytest.raises(NoSuchMessage):
        decoder("enum Only { NONE = 0; }")


def test_references_are_imported() -> None:
    both = decoder(
        'import "b.proto"; message A { B b = 1; C c = 2; }',
        b='import public "c.proto"; message B { int32 x = 1; }',
        c="message C { int32 y = 1; }",
    )
    [row] = both.decode(
        pa.array([b"\x0a\x02\x08\x05\x12\x02\x08\x06"], pa.binary())
    ).columns.to_pylist()
    assert row == {"b": {"x": 5}, "c": {"y": 6}}


def test_reference_in_a_folder_is_imported() -> None:
    text = HEAD + 'import "shop/v1/item.proto"; message A { shop.Item item = 1; }'
    item = ("shop/v1/item.proto", HEAD + "package shop; message Item { int32 x = 1; }")
    made = ProtobufDecoder.compile(SchemaText("PROTOBUF", text, (item,)), (0,))
    assert made.schema.field("item").type == pa.struct([pa.field("x", pa.int32())])


@pytest.mark.parametrize(
    "name",
    ["../../x.proto", "/etc/x.proto", "a/../../x.proto", "..", "__root__.proto", "a\0.proto", ""],
)
def test_reference_with_a_malicious_name_is_refused(name: str) -> None:
    text = SchemaText("PROTOBUF", HEAD + "message A {}", ((name, HEAD),))
    with pytest.raises(RefusedSchema):
        ProtobufDecoder.compile(text, (0,))


def test_reference_cannot_replace_protobufs_own_types() -> None:
    fake = (
        "google/protobuf/timestamp.proto",
        HEAD + "package google.protobuf; message Timestamp { string seconds = 1; }",
    )
    text = (
        HEAD
        + 'import "google/protobuf/timestamp.proto"; message A { google.protobuf.Timestamp t = 1; }'
    )
    made = ProtobufDecoder.compile(SchemaText("PROTOBUF", text, (fake,)), (0,))
    payload = b"\x0a\x02\x08\x05"
    [row] = made.decode(pa.array([payload], pa.binary())).columns.to_pylist()
    assert row == {"t": datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)}


def test_schema_that_does_not_compile_is_refused_in_the_compilers_words() -> None:
    with pytest.raises(RefusedSchema, match='"Missing" is not defined'):
        decoder("message A { Missing m = 1; }")


def test_message_of_too_many_fields_is_refused() -> None:
    levels = "".join(
        f"message M{level} {{ "
        + "".join(f"M{level + 1} f{at} = {at + 1}; " for at in range(8))
        + "}"
        for level in range(10)
    )
    with pytest.raises(RefusedSchema, match="more than 10000 fields"):
        decoder(levels + "message M10 { string s = 1; }")


def test_message_whose_fields_nest_too_deep_is_refused() -> None:
    chain = "".join(f"message M{at} {{ M{at + 1} m = 1; }}" for at in range(2_000))
    with pytest.raises(RefusedSchema, match="nest deeper"):
        decoder(chain + "message M2000 {}")


@pytest.mark.parametrize(
    "text",
    [
        'edition = "2023"; message M { int32 a = 1; }',
        HEAD + "message M { int32 a = 1; int32 A = 2; }",
    ],
    ids=["edition", "names that differ by case alone"],
)
def test_schema_that_the_decoder_cannot_take_is_refused(text: str) -> None:
    with pytest.raises(RefusedSchema, match="cannot be decoded"):
        ProtobufDecoder.compile(SchemaText("PROTOBUF", text), (0,))
