from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from headgate.formats.decoder import Decoded
from headgate.formats.protobuf import ProtobufDecoder
from headgate.registry.registry import RefusedSchema, SchemaText

OWN = ["any", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers"]
IMPORTS = 'syntax = "proto3";' + "".join(f'import "google/protobuf/{name}.proto";' for name in OWN)
FIRST, LAST = -62_135_596_800, 253_402_300_799


def decoder(fields: str) -> ProtobufDecoder:
    text = IMPORTS + f"message M {{ {fields} }}".replace("own.", "google.protobuf.")
    return ProtobufDecoder.compile(SchemaText("PROTOBUF", text), (0,))


def decode(of: ProtobufDecoder, *messages: Any, times: int = 1) -> Decoded:
    payloads = [message.SerializeToString() for message in messages] * times
    return of.decode(pa.array(payloads, pa.binary()))


MOMENT = decoder("own.Timestamp at = 1; repeated own.Timestamp many = 2; string name = 3;")


@pytest.mark.parametrize("times", [1, 60])
def test_moments_are_cut_to_microseconds(times: int) -> None:
    seconds = [(FIRST, 0), (-1, 999_999_999), (0, 999), (0, 1_000), (LAST, 999_999_999)]
    rows = [MOMENT.message(at={"seconds": s, "nanos": n}) for s, n in seconds]
    assert (
        decode(MOMENT, *rows, times=times).columns.column("at").to_pylist()
        == [
            datetime(1, 1, 1, tzinfo=UTC),
            datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
            datetime(1970, 1, 1, tzinfo=UTC),
            datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
            datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        ]
        * times
    )


@pytest.mark.parametrize("times", [1, 60])
@pytest.mark.parametrize(
    ("seconds", "nanos"),
    [
        (FIRST - 1, 0),
        (LAST + 1, 0),
        (2**63 - 1, 0),
        (-(2**63), 0),
        (0, -1),
        (0, 1_000_000_000),
        (0, -(2**31)),
    ],
)
def test_invalid_timestamp_makes_the_record_bad(seconds: int, nanos: int, times: int) -> None:
    never = {"seconds": seconds, "nanos": nanos}
    rows = [
        MOMENT.message(name="before"),
        MOMENT.message(at=never),
        MOMENT.message(many=[{"seconds": 1}, never]),
        MOMENT.message(name="after"),
    ]
    result = decode(MOMENT, *rows, times=times)
    assert [row % 4 for row in sorted(result.bad)] == [1, 2] * times
    assert result.bad[1] == (
        f"at: a timestamp of {seconds} s and {nanos} ns is not within the years 1 to 9999"
    )
    assert result.columns.column("name").to_pylist() == ["before", "after"] * times


def test_moment_in_two_parts_is_merged() -> None:
    payload = MOMENT.message(at={"seconds": 5}).SerializeToString()
    payload += MOMENT.message(at={"nanos": 7_000}).SerializeToString()
    [row] = MOMENT.decode(pa.array([payload], pa.binary())).columns.to_pylist()
    assert row["at"] == datetime(1970, 1, 1, 0, 0, 5, 7, tzinfo=UTC)


LENGTH = decoder("own.Duration d = 1;")


@pytest.mark.parametrize("times", [1, 60])
def test_durations_are_microseconds(times: int) -> None:
    parts = [(0, 999), (1, 1_999), (-1, -1_999), (0, -999), (315_576_000_000, 0)]
    rows = [LENGTH.message(d={"seconds": s, "nanos": n}) for s, n in parts]
    assert (
        decode(LENGTH, *rows, LENGTH.message(), times=times).columns.column("d").to_pylist()
        == [
            0,
            1_000_001,
            -1_000_001,
            0,
            315_576_000_000_000_000,
            None,
        ]
        * times
    )


@pytest.mark.parametrize("times", [1, 60])
def test_duration_that_is_no_long_makes_the_record_bad(times: int) -> None:
    longest = 9_223_372_036_854
    parts = [(longest, 775_807_999), (longest, 775_808_000), (-longest, -775_808_999)]
    parts += [(-longest, -775_809_000), (2**63 - 1, 0), (longest - 2, 2**31 - 1)]
    rows = [LENGTH.message(d={"seconds": s, "nanos": n}) for s, n in parts]
    result = decode(LENGTH, *rows, times=times)
    assert [row % 6 for row in sorted(result.bad)] == [1, 3, 4] * times
    assert "more than a long of microseconds" in result.bad[1]
    assert (
        result.columns.column("d").to_pylist()
        == [
            2**63 - 1,
            -(2**63),
            (longest - 2) * 1_000_000 + 2_147_483,
        ]
        * times
    )


def test_wrapped_scalars_may_be_null() -> None:
    wrapped = decoder("own.UInt64Value u = 1; own.StringValue s = 2; own.BoolValue b = 3;")
    zeros = wrapped.message(u={}, s={}, b={})
    assert decode(wrapped, wrapped.message(), zeros).columns.to_pylist() == [
        {"u": None, "s": None, "b": None},
        {"u": 0, "s": "", "b": False},
    ]


def test_masks_and_anys_keep_what_they_have() -> None:
    both = decoder("own.FieldMask mask = 1; own.Any any = 2;")
    row = both.message(mask={"paths": ["a.b", "Camel"]}, any={"type_url": "x/No", "value": b"\xff"})
    assert decode(both, row, both.message()).columns.to_pylist() == [
        {"mask": {"paths": ["a.b", "Camel"]}, "any": {"type_url": "x/No", "value": b"\xff"}},
        {"mask": None, "any": None},
    ]


def test_empty_says_whether_it_is_there() -> None:
    empty = decoder("own.Empty e = 1; repeated own.Empty many = 2; map<string, own.Empty> by = 3;")
    there = empty.message(e={}, many=[{}, {}], by={"a": {}})
    assert decode(empty, there, empty.message()).columns.to_pylist() == [
        {"e": True, "many": [True, True], "by": [("a", True)]},
        {"e": False, "many": [], "by": []},
    ]


def test_entries_without_key_or_value_have_those_of_python_protobuf() -> None:
    maps = decoder(
        "map<string, int32> n = 1; map<int32, own.Timestamp> t = 2; map<string, own.Struct> s = 3;"
    )
    payload = b"\x0a\x00\x12\x00\x1a\x03\x0a\x01a"
    for times in (1, 100):
        rows = maps.decode(pa.array([payload] * times, pa.binary())).columns.to_pylist()
        epoch = datetime(1970, 1, 1, tzinfo=UTC)
        assert rows == [{"n": [("", 0)], "t": [(0, epoch)], "s": [("a", "{}")]}] * times


def test_key_that_comes_twice_counts_once() -> None:
    maps = decoder("map<string, int32> n = 1;")
    first, second = (maps.message(n={"a": 1, "b": 2}), maps.message(n={"a": 3}))
    payload = first.SerializeToString() + second.SerializeToString()
    for times in (1, 100):
        result = maps.decode(pa.array([payload] * times, pa.binary()))
        assert [dict(row) for row in result.columns.column("n").to_pylist()] == [
            {"a": 3, "b": 2}
        ] * times
        assert {len(row) for row in result.columns.column("n").to_pylist()} == {2}


def test_schema_that_brings_its_own_timestamp_is_refused() -> None:
    fake = 'syntax = "proto3"; package google.protobuf; message M { Timestamp t = 1; }'
    text = fake + " message Timestamp { string seconds = 1; }"
    with pytest.raises(RefusedSchema, match="is not the one of protobuf itself"):
        ProtobufDecoder.compile(SchemaText("PROTOBUF", text), (0,))
