"""A small file can have millions of records that are not changes; few of them are kept."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator

import pytest

from headgate.envelopes.datastream import changes as limits
from headgate.envelopes.datastream import json_file
from headgate.envelopes.datastream.changes import MAX_REJECTED, MAX_REJECTED_SIZE
from headgate.envelopes.datastream.file import open_file
from headgate.envelopes.datastream.json_records import JsonRecord, json_records
from tests.envelopes.datastream.writing import (
    COMPRESSED,
    TOP,
    avro,
    block,
    change,
    count,
    header,
    json_change,
    lines,
    nullable,
    payload_bytes,
    record,
    schema,
)

NAMELESS = schema(source={"table": nullable("string")}, top=TOP)
NO_TABLE = change(source={"table": None})


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[JsonRecord]:
    """Return the records that were parsed so far."""
    seen: list[JsonRecord] = []

    def spied(content: bytes) -> Iterator[JsonRecord]:
        for one in json_records(content):
            seen.append(one)
            yield one

    monkeypatch.setattr(json_file, "json_records", spied)
    return seen


@pytest.mark.parametrize("line", [b"junk", b"0", b"{}", b'"text"', b'{"source_metadata":{}}'])
def test_file_of_junk_is_unreadable_after_its_first_records(
    parsed: list[JsonRecord], line: bytes
) -> None:
    opened = open_file(gzip.compress((line + b"\n") * 50_000))
    assert opened.unreadable is not None
    assert (opened.changes, opened.rejected, opened.more_rejected) == ([], [], 0)
    assert len(parsed) == MAX_REJECTED + 1


def test_array_of_junk_is_unreadable_after_its_first_records(parsed: list[JsonRecord]) -> None:
    opened = open_file(b"[" + b"0," * 50_000 + b"0]")
    assert opened.unreadable == "none of its first 1000 records is a change"
    assert len(parsed) == MAX_REJECTED + 1


def test_few_junk_lines_are_kept_one_by_one() -> None:
    opened = open_file(lines(json_change()) + b"{}\n" * MAX_REJECTED)
    assert (count(opened), len(opened.rejected), opened.more_rejected) == (1, MAX_REJECTED, 0)


def test_number_of_kept_records_is_limited() -> None:
    opened = open_file(b"{}\n" * 900 + lines(json_change()) + b"{}\n" * 4_100)
    assert (count(opened), len(opened.rejected), opened.more_rejected) == (1, MAX_REJECTED, 4_000)


def test_bytes_of_kept_records_are_limited() -> None:
    line = json.dumps("x" * (1 << 20)).encode() + b"\n"
    opened = open_file(lines(json_change()) + line * 40)
    assert sum(len(one.raw) for one in opened.rejected) <= MAX_REJECTED_SIZE
    assert len(opened.rejected) + opened.more_rejected == 40


def test_one_large_record_is_kept_and_does_not_hide_the_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "MAX_REJECTED_SIZE", 10)
    opened = open_file(b'"more than ten bytes"\n' * 2 + lines(json_change()))
    assert (count(opened), len(opened.rejected), opened.more_rejected) == (1, 1, 1)


def test_file_with_far_too_many_junk_lines_is_unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_UNUSABLE", 3_000)
    opened = open_file(lines(json_change()) + b"{}\n" * 3_001)
    assert opened.unreadable == "more than 3000 records are not changes"


def test_number_of_records_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_RECORDS", 10)
    assert open_file(lines(*[json_change()] * 12)).unreadable == "more than 10 records"
    assert open_file(avro(schema(), [change()] * 12)).unreadable == "more than 10 records"


def test_blank_lines_are_not_records() -> None:
    opened = open_file(b"\n \t\r\n" * 100_000 + lines(json_change()) + b"\n" * 100_000)
    assert (count(opened), opened.rejected) == (1, [])


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_number_of_kept_avro_records_is_limited(codec: str) -> None:
    opened = open_file(avro(NAMELESS, [change(), *[NO_TABLE] * 5_000], codec))
    assert count(opened) == 1
    assert 0 < len(opened.rejected) <= MAX_REJECTED
    assert sum(len(one.raw) for one in opened.rejected) <= MAX_REJECTED_SIZE
    assert len(opened.rejected) + opened.more_rejected == 5_000


def test_avro_file_without_changes_is_unreadable_if_it_has_many_records() -> None:
    opened = open_file(avro(NAMELESS, [NO_TABLE] * 5_000, "deflate"))
    assert opened.unreadable == "none of its first 1000 records is a change"
    few = open_file(avro(NAMELESS, [NO_TABLE] * 20))
    assert (len(few.rejected), few.unreadable) == (20, None)


def test_number_of_undecodable_avro_records_is_limited() -> None:
    written = record("x", source_metadata=record("s", table="string"), payload=record("p"))
    good = payload_bytes(written, {"source_metadata": {"table": "t"}, "payload": {}})
    content = good + b"\x02\xff" * 5_000  # a text of one byte that is not UTF-8
    deflate = COMPRESSED["deflate"][1]
    opened = open_file(header(written, "deflate") + block(deflate(content), 5_001))
    assert count(opened) == 1
    assert len(opened.rejected) + opened.more_rejected == 5_000
    assert len(opened.rejected) <= MAX_REJECTED


def test_small_avro_records_without_a_table_are_counted_before_they_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = record("x", source_metadata=record("s", table="string"), payload=record("p"))
    content = header(written, "deflate") + block(COMPRESSED["deflate"][1](bytes(400_000)), 400_000)
    assert len(content) < 2_000
    opened = open_file(content)
    assert opened.unreadable in {
        "more than 100000 records are not changes",
        "none of its first 1000 records is a change",
    }


def test_gzip_file_may_have_very_many_parts() -> None:
    """Each part takes the time of its own size, not of the rest of the file."""
    part = gzip.compress(b"")
    opened = open_file(part * 100_000 + gzip.compress(lines(json_change())))
    assert count(opened) == 1
