"""Any bytes are a readable, an unfinished or an unreadable file; opening never raises."""

from __future__ import annotations

import gzip
import random
import zlib

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.envelopes.datastream import container
from headgate.envelopes.datastream.file import open_file
from tests.envelopes.datastream.writing import (
    COMPRESSED,
    SYNC,
    avro,
    block,
    change,
    count,
    extract,
    header,
    json_change,
    lines,
    long_bytes,
    payload_bytes,
    record,
    rows,
    schema,
    sized,
)

CHANGES = [change({"id": at, "name": "Zoë"}) for at in range(3)]
JSON_CHANGES = [json_change({"id": at, "name": "Zoë", "share": -1.5e3}) for at in range(2)]
SMALL = header(schema()) + b"".join(block(payload_bytes(schema(), one), 1) for one in CHANGES)
ARRAY = b"[" + b",\n".join(lines(one).strip() for one in JSON_CHANGES) + b"]\n"


def test_avro_file_cut_anywhere_is_unfinished_or_ends_after_a_block() -> None:
    step = len(block(payload_bytes(schema(), CHANGES[0]), 1))
    whole = {len(SMALL) - step * left: 3 - left for left in range(4)}
    for end in range(1, len(SMALL) + 1):
        opened = open_file(SMALL[:end])
        assert opened.unreadable is None
        assert opened.unfinished == (end not in whole), end
        assert count(opened) == whole.get(end, 0)


@pytest.mark.parametrize("codec", ["deflate", "bzip2"])
def test_compressed_avro_file_cut_anywhere_is_unfinished(codec: str) -> None:
    content = avro(schema(), CHANGES, codec)
    complete = [end for end in range(1, len(content)) if not open_file(content[:end]).unfinished]
    assert [open_file(content[:end]).unreadable for end in complete] == [None] * len(complete)
    assert all(count(open_file(content[:end])) == 0 for end in complete)


def test_json_lines_cut_anywhere_are_unfinished_or_end_after_a_line() -> None:
    content = lines(*JSON_CHANGES)
    line = content.index(b"\n")
    whole = {line: 1, line + 1: 1, len(content) - 1: 2, len(content): 2}
    for end in range(1, len(content) + 1):
        opened = open_file(content[:end])
        assert (opened.unreadable, opened.rejected) == (None, []), content[:end]
        assert opened.unfinished == (end not in whole)
        assert count(opened) == whole.get(end, 0)


@pytest.mark.parametrize("text", [ARRAY, b"\xef\xbb\xbf" + ARRAY, '[{"ä":"\\u00e4😀"}]'.encode()])
def test_json_array_cut_anywhere_is_unfinished(text: bytes) -> None:
    for end in range(1, len(text.rstrip())):
        opened = open_file(text[:end])
        bom = text[:end] == b"\xef\xbb\xbf"
        assert (opened.unfinished, opened.unreadable) == (not bom, None), text[:end]
    assert not open_file(text).unfinished


@pytest.mark.parametrize("inside", [SMALL, ARRAY])
def test_gzip_file_is_opened_and_one_cut_anywhere_is_unfinished(inside: bytes) -> None:
    content = gzip.compress(inside)
    assert count(open_file(content)) == count(open_file(inside)) > 0
    for end in range(1, len(content)):
        assert open_file(content[:end]).unfinished
    assert extract(content, 1) == extract(inside, 1)


def test_gzip_file_may_have_several_parts() -> None:
    first, second = (gzip.compress(lines(one)) for one in JSON_CHANGES)
    assert [one["id"] for one in rows(first + second)] == [0, 1]
    assert open_file(first + b"no gzip").unreadable


def test_damaged_avro_file_never_raises() -> None:
    chance = random.Random(7)
    outcomes = set()
    for _ in range(1_500):
        spoiled = bytearray(SMALL)
        for _ in range(chance.choice([1, 2, 6])):
            spoiled[chance.randrange(len(spoiled))] = chance.randrange(256)
        opened = open_file(bytes(spoiled))
        outcomes.add((opened.unreadable is not None, opened.unfinished))
        assert not ((opened.unreadable or opened.unfinished) and count(opened))
        extract(bytes(spoiled), 1)
    assert outcomes == {(True, False), (False, False), (False, True)}


@given(st.binary(max_size=60), st.sampled_from([b"", b"Obj\x01", b"\x1f\x8b", b"[", b"{", SMALL]))
@settings(deadline=None, max_examples=300)
def test_random_bytes_never_raise(noise: bytes, before: bytes) -> None:
    opened = open_file(before + noise)
    assert opened.unreadable is None or opened.changes == []
    extract(before + noise, 0)
    extract(before + noise, 5)


def test_damaged_block_makes_the_whole_file_unreadable() -> None:
    good = payload_bytes(schema(), *CHANGES)
    for blocks in (
        block(good, 3) + block(good[:-1], 3),
        block(good, 3) + block(good + b"\x00", 3),
        block(good, 3) + block(good, 2),
        block(good, 3) + block(good, 4),
        block(good, 3) + block(b"", 1),
        block(good, 3)[:-1] + b"\xff",
        block(good, 3) + long_bytes(-1) + sized(good) + SYNC,
        block(good, 3) + long_bytes(1) + long_bytes(-1) + SYNC,
        block(good, 3) + long_bytes(1 << 40) + sized(good) + SYNC,
        block(good, 3) + b"\xff" * 11,
    ):
        opened = open_file(header(schema()) + blocks)
        assert opened.unreadable
        assert (opened.changes, opened.rejected) == ([], [])


def test_block_of_another_codec_is_unreadable() -> None:
    content = payload_bytes(schema(), *CHANGES)
    for codec in ("deflate", "snappy", "zstandard", "bzip2", "xz"):
        for values in (content, b"", b"\x00", zlib.compress(content)):
            opened = open_file(header(schema(), codec) + block(values, 3))
            assert opened.unreadable, codec


def test_wrong_snappy_checksum_is_unreadable() -> None:
    content = payload_bytes(schema(), *CHANGES)
    values = pa.Codec("snappy").compress(content, asbytes=True) + b"\x00\x00\x00\x00"
    opened = open_file(header(schema(), "snappy") + block(values, 3))
    assert "checksum" in str(opened.unreadable)


@pytest.mark.parametrize("codec", ["deflate", "zstandard", "bzip2", "xz", "snappy"])
def test_decompression_bomb_is_unreadable(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.envelopes.datastream.avro.MAX_FILE_SIZE", 1 << 20)
    content = COMPRESSED[codec][1](bytes(1 << 22))
    opened = open_file(header(schema(), codec) + block(content, 1))
    assert "more than" in str(opened.unreadable)


def test_gzip_bomb_is_unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "MAX_FILE_SIZE", 1 << 20)
    assert "more than 1 MB" in str(open_file(gzip.compress(b" " * (1 << 21))).unreadable)


def test_zero_size_columns_cannot_exhaust_memory() -> None:
    writer_schema = schema(record("payload", **{f"c{at}": "null" for at in range(9_000)}))
    content = payload_bytes(schema(record("payload")), change({}))
    opened = open_file(header(writer_schema) + block(content * 20_000, 20_000))
    assert "values" in str(opened.unreadable)


def test_number_of_zero_size_records_is_limited() -> None:
    writer_schema = record("x", source_metadata=record("s", table="null"), payload=record("p"))
    assert open_file(header(writer_schema) + block(b"", 1 << 28)).unreadable


@pytest.mark.parametrize("content", [b"", b" \n\n", b"\xef\xbb\xbf", b"[]", b" [ ] \n"])
def test_empty_file_has_no_changes(content: bytes) -> None:
    opened = open_file(content)
    assert (opened.changes, opened.unreadable, opened.unfinished) == ([], None, False)


def test_content_may_be_a_buffer() -> None:
    assert count(open_file(pa.py_buffer(SMALL))) == 3
    assert extract(pa.py_buffer(SMALL), 2) == extract(SMALL, 2)


def test_header_without_schema_or_end_is_unreadable() -> None:
    no_schema = b"Obj\x01" + long_bytes(0) + SYNC
    assert open_file(no_schema).unreadable == "the header has no schema"
    assert open_file(b"Obj\x01" + long_bytes(1 << 50) + b"\x00" * 64).unreadable
    assert open_file(b"Obj\x01" + long_bytes(1) + long_bytes(1 << 40)).unreadable
