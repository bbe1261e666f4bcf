from __future__ import annotations

import os
import signal
import warnings
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from tests.formats.avro.writing import (
    LEAST,
    LONGEST,
    decoded,
    long_bytes,
    parsed,
    read,
    record,
    string_bytes,
    written,
)


def test_primitive_types_keep_their_values() -> None:
    schema = record(
        a="int", b="long", c="float", d="double", e="bytes", f="string", g="boolean", h="null"
    )
    row = {"a": -1, "b": 2**40, "c": 0.5, "d": 0.1, "e": b"\0", "f": "é", "g": True, "h": None}
    assert read(schema, row) == [row]


def test_record_name_is_the_full_name() -> None:
    assert parsed(record(a="int")).record_name == "shop.Order"


@pytest.mark.parametrize(
    ("kind", "logical", "value", "stored"),
    [
        ("int", "date", date(2026, 1, 2), date(2026, 1, 2)),
        ("int", "time-millis", time(0, 0, 1, 5_000), 1_005_000),
        ("long", "time-micros", time(0, 0, 1, 5), 1_000_005),
        ("long", "timestamp-millis", *[datetime(2026, 1, 2, 3, tzinfo=UTC)] * 2),
        ("long", "timestamp-micros", *[datetime(2026, 1, 2, 3, 4, 5, 6, UTC)] * 2),
        ("long", "timestamp-nanos", 1, 1),
        ("long", "local-timestamp-millis", *[datetime(1970, 1, 1, 0, 0, 1)] * 2),
        ("long", "local-timestamp-micros", *[datetime(1970, 1, 1, 0, 0, 0, 1)] * 2),
        ("long", "local-timestamp-nanos", 1, 1),
        ("string", "uuid", UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        ("string", "of-my-own", "x", "x"),
    ],
)
def test_logical_types_have_a_column(kind: str, logical: str, value: Any, stored: Any) -> None:
    assert read(record(a={"type": kind, "logicalType": logical}), {"a": value}) == [{"a": stored}]


def test_fixed_logical_types_have_a_column() -> None:
    schema = record(
        a={"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"},
        b={"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"},
    )
    payload = UUID(int=5).bytes + b"\1\0\0\0\2\0\0\0\xff\xff\xff\xff"
    assert decoded(schema, payload).columns.to_pylist() == [
        {"a": str(UUID(int=5)), "b": {"months": 1, "days": 2, "millis": 2**32 - 1}}
    ]


def test_decimals_of_bytes_and_of_fixed_are_kept() -> None:
    number = {"logicalType": "decimal", "precision": 10, "scale": 2}
    schema = record(
        a={"type": "bytes", **number}, b={"type": "fixed", "name": "F", "size": 5, **number}
    )
    row = {"a": Decimal("-1.25"), "b": Decimal("99999999.99")}
    assert read(schema, row) == [row]


def test_decimal_of_many_digits_is_text() -> None:
    schema = record(a={"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 3})
    number = 12345678901234567890123456789012345678901234567
    rows = [bytes_of(one) for one in (number, -number, -5, 0)]
    assert [row["a"] for row in decoded(schema, *rows).columns.to_pylist()] == [
        "12345678901234567890123456789012345678901234.567",
        "-12345678901234567890123456789012345678901234.567",
        "-0.005",
        "0.000",
    ]


def bytes_of(number: int) -> bytes:
    raw = number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)
    return long_bytes(len(raw)) + raw


def test_timestamps_beyond_pythons_range_are_kept() -> None:
    schema = record(
        a={"type": "long", "logicalType": "timestamp-micros"},
        b={"type": "long", "logicalType": "local-timestamp-micros"},
        c={"type": "int", "logicalType": "date"},
    )
    result = decoded(schema, LONGEST * 2 + long_bytes(-(2**31)))
    assert result.bad == {}
    numbers = [column.view(f"int{column.type.bit_width}") for column in result.columns.columns]
    assert [one[0].as_py() for one in numbers] == [2**63 - 1, 2**63 - 1, -(2**31)]


def test_milliseconds_beyond_64_bits_of_microseconds_are_bad() -> None:
    schema = record(a={"type": "long", "logicalType": "timestamp-millis"})
    most = (2**63 - 1) // 1_000
    result = decoded(schema, *(long_bytes(one) for one in (most, most + 1, -most - 1)))
    assert list(result.bad) == [1, 2]


def test_nested_types_keep_their_values() -> None:
    line = {"type": "record", "name": "Line", "fields": [{"name": "n", "type": "int"}]}
    schema = record(
        first=line,
        lines={"type": "array", "items": "Line"},
        named={"type": "map", "values": ["null", "long"]},
        color={"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]},
        code={"type": "fixed", "name": "Code", "size": 2},
    )
    row = {"first": {"n": 1}, "lines": [{"n": 2}, {"n": 3}], "color": "BLUE", "code": b"ab"}
    assert read(schema, {**row, "named": {"a": 1, "b": None}}) == [
        {**row, "named": [("a", 1), ("b", None)]}
    ]


def test_union_with_null_is_nullable() -> None:
    schema = record(a=["null", "string"], b=["int", "null"])
    assert read(schema, {"a": "x", "b": None}, {"a": None, "b": 3}) == [
        {"a": "x", "b": None},
        {"a": None, "b": 3},
    ]


def test_union_of_several_types_has_a_field_per_branch() -> None:
    schema = record(a=["null", "int", "long", "string"])
    payloads = [b"\x00", b"\x02\x0a", b"\x04\x0a", b"\x06\x02x"]
    nothing = {"int": None, "long": None, "string": None}
    assert decoded(schema, *payloads).columns.to_pylist() == [
        {"a": None},
        {"a": {**nothing, "int": 5}},
        {"a": {**nothing, "long": 5}},
        {"a": {**nothing, "string": "x"}},
    ]


@pytest.mark.parametrize(
    ("schema", "name", "value", "stored"),
    [
        ("string", "string", "x", "x"),
        (["null", "int"], "union", None, None),
        ({"type": "array", "items": "int"}, "array", [1, 2], [1, 2]),
        ({"type": "enum", "name": "a.E", "symbols": ["X"]}, "a.E", "X", "X"),
    ],
)
def test_schema_that_is_not_a_record_has_one_column(
    schema: Any, name: str, value: Any, stored: Any
) -> None:
    assert parsed(schema).record_name == name
    assert read(schema, value) == [{"value": stored}]


def test_record_without_fields_has_rows_and_no_columns() -> None:
    result = decoded(record(), b"", b"\0", b"")
    assert (result.columns.num_rows, result.columns.num_columns) == (2, 0)
    assert list(result.bad) == [1]


def test_recursive_record_is_text_from_the_recursion_on() -> None:
    schema = record("Node", id="int", next=["null", "Node"], last="string")
    row = {"id": 1, "next": {"id": 2, "next": None, "last": "é"}, "last": "x"}
    assert read(schema, row, {**row, "next": None}) == [
        {"id": 1, "next": '{"id":2,"next":null,"last":"é"}', "last": "x"},
        {"id": 1, "next": None, "last": "x"},
    ]


def test_text_has_every_type_as_json_has_it() -> None:
    number = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    big = {"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 2}
    schema = record(
        "Node",
        inside=["null", "Node"],
        a="bytes",
        b={"type": "fixed", "name": "F", "size": 2},
        c="double",
        d="float",
        e="double",
        f=number,
        g=big,
        h={"type": "map", "values": ["null", "int", "F"]},
        i={"type": "enum", "name": "E", "symbols": ["X"]},
        j={"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"},
        k={"type": "long", "logicalType": "timestamp-micros"},
        m="boolean",
    )
    row = {
        "inside": None,
        "a": b"\xff\0",
        "b": b"ab",
        "c": float("nan"),
        "d": float("-inf"),
        "e": float("inf"),
        "f": Decimal("-0.50"),
        "g": Decimal(10) ** 50,
        "h": {"x": None, "y": 1, "z": b"cd"},
        "i": "X",
        "j": b"\1\0\0\0" * 3,
        "k": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        "m": True,
    }
    [found] = read(schema, {**row, "inside": row})
    assert found["inside"] == (
        '{"inside":null,"a":"/wA=","b":"YWI=","c":"NaN","d":"-Infinity","e":"Infinity",'
        f'"f":"-0.50","g":"1{"0" * 50}.00","h":{{"x":null,"y":{{"int":1}},"z":{{"F":"Y2Q="}}}},'
        '"i":"X","j":{"months":1,"days":1,"millis":1},"k":1000000,"m":true}'
    )


TEXT = record(a="string", b="int")
GOOD = written(TEXT, {"a": "ok", "b": 1})
WRONG = {
    "cut": GOOD[:-1],
    "more": GOOD + b"\0",
    "empty": b"",
    "not utf-8": b"\x02\xff\x02",
    "endless": LONGEST,
    "negative length": b"\x01",
    "endless number": b"\x02a" + b"\xff" * 20,
    "too many bits": b"\x02a" + b"\xff" * 9 + b"\x02",
    "long for int": b"\x02a" + LONGEST,
}


@pytest.mark.parametrize("copies", [1, 1_000], ids=["few", "many"])
def test_only_malformed_records_are_bad(copies: int) -> None:
    payloads = [GOOD] * copies
    for wrong in WRONG.values():
        payloads += [wrong, *[GOOD] * copies]
    result = decoded(TEXT, *payloads)
    bad = [(copies + 1) * at + copies for at in range(len(WRONG))]
    assert sorted(result.bad) == bad
    assert result.bad[bad[1]] == "1 bytes after the record"
    assert result.columns.to_pylist() == [{"a": "ok", "b": 1}] * (len(payloads) - len(bad))


def test_records_keep_their_order_around_bad_ones() -> None:
    payloads = [string_bytes(f"{at}") + b"\2" for at in range(5_000)]
    for at in (0, 77, 78, 2_500, 4_999):
        payloads[at] = b"\1"
    result = decoded(TEXT, *payloads)
    assert list(result.bad) == [0, 77, 78, 2_500, 4_999]
    kept = [at for at in range(5_000) if at not in result.bad]
    assert result.columns.column("a").to_pylist() == [str(at) for at in kept]


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("boolean", b"\1", [b"\2", b"\xff", b"\x80\0"]),
        ({"type": "enum", "name": "E", "symbols": ["X"]}, b"\0", [b"\1", b"\2", LONGEST]),
        (["null", "int"], b"\0", [b"\1", b"\4\2", b"\x0a\2", b"\3\2", LONGEST + b"\2"]),
        (["int", "null"], b"\2", [b"\1", b"\4", b"\x0a\2", LONGEST]),
        (["int"], b"\0\2", [b"\2", b"\2\2", b"\4\2"]),
        (["null"], b"\0", [b"\2", b"\2a", b"\1"]),
        (["null", "int", "string"], b"\0", [b"\6", b"\1", b"\6\2"]),
        ({"type": "map", "values": "int"}, b"\2\2a\2\0", [b"\4\2a\2\2a\2\0", b"\2\2a\2\2\2a\2\0"]),
        ({"type": "array", "items": "int"}, b"\2\2\0", [b"\2\2", LONGEST, b"\1", LEAST + b"\2\2"]),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 2},
            b"\2\x63",
            [b"\0", b"\2\x64"],
        ),
        ({"type": "fixed", "name": "F", "size": 2}, b"ab", [b"a", b"abc"]),
    ],
    ids=str,
)
@pytest.mark.parametrize("copies", [1, 3_000], ids=["few", "many"])
def test_hostile_values_are_bad_records(
    kind: Any, good: bytes, bad: list[bytes], copies: int
) -> None:
    payloads = [*[good] * copies, *bad, *[good] * copies]
    result = decoded(record(a=kind), *payloads)
    assert sorted(result.bad) == list(range(copies, copies + len(bad)))
    assert result.columns.num_rows == 2 * copies


def test_block_with_its_size_is_read() -> None:
    schema = record(a={"type": "array", "items": "int"})
    payload = long_bytes(-2) + long_bytes(2) + b"\2\4" + b"\2\6" + b"\0"
    assert decoded(schema, payload).columns.to_pylist() == [{"a": [1, 2, 3]}]


def test_padded_decimal_is_the_same_number() -> None:
    schema = record(a={"type": "bytes", "logicalType": "decimal", "precision": 2})
    payloads = [long_bytes(size) + b"\xff" * size for size in (1, 16, 17, 30)]
    assert decoded(schema, *payloads * 500).columns.to_pylist() == [{"a": Decimal(-1)}] * 2_000


def test_huge_array_of_nulls_is_a_bad_record() -> None:
    wide = record("Wide", **{f"f{at}": "int" for at in range(2_000)})
    schema = record(a={"type": "array", "items": ["null", wide]})
    payloads = [long_bytes(size) + b"\0" * size + b"\0" for size in (5, 100_000)]
    result = decoded(schema, *payloads)
    assert list(result.bad) == [1]
    assert "values in arrays" in result.bad[1]


def test_too_deep_value_is_a_bad_record() -> None:
    chain = record("Node", next=["null", "Node"])
    tree = record("Node", all={"type": "array", "items": "Node"})
    endless = record("Node", me="Node")
    for schema, deeper, end in ((chain, b"\2", b"\0"), (tree, b"\2", b"\0"), (endless, b"", b"")):
        result = decoded(schema, deeper * 100_000 + end, deeper * 5_000_000)
        assert set(result.bad.values()) == {"nests deeper than 100"}
    assert decoded(chain, b"\2" * 100 + b"\0").bad == {}
    assert decoded(chain, b"\2" * 101 + b"\0").bad == {0: "nests deeper than 100"}


def test_no_payloads_are_no_rows() -> None:
    result = decoded(TEXT)
    assert (result.columns.num_rows, result.bad) == (0, {})
    assert result.columns.schema == parsed(TEXT).schema


def test_part_of_an_array_is_decoded() -> None:
    payloads = pa.array([b"\1", *[GOOD] * 2_000, b"\1"], pa.binary())[1:-1]
    result = parsed(TEXT).decode(payloads)
    assert (result.columns.num_rows, result.bad) == (2_000, {})


def test_field_names_become_safe_columns() -> None:
    topic, twin, odd = parsed(record(_topic="int", _Topic="int", **{"a b": "int"})).schema.names
    assert topic.startswith("_topic__")
    assert twin.startswith("_Topic__")
    assert odd.startswith("a_b__")


def test_forked_process_decodes_without_the_threads_of_its_parent() -> None:
    decoder = parsed(TEXT)
    payloads = pa.array([GOOD] * 3_000, pa.binary())
    expected = replace(decoder, batches=None).decode(payloads).columns
    assert decoder.decode(payloads).columns == expected
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        signal.alarm(60)
        os._exit(0 if decoder.decode(payloads).columns == expected else 1)
    assert os.waitpid(child, 0)[1] == 0
