"""A quarantined record can be opened again."""

from __future__ import annotations

import json

import pytest

from headgate.envelopes.datastream.file import open_file
from tests.envelopes.datastream.writing import (
    TOP,
    avro,
    change,
    extract,
    json_change,
    lines,
    nullable,
    only,
    schema,
)

CHANGES = [change({"id": at, "name": "x" * at}, uuid=None) for at in range(40)]
JSON_CHANGES = [json_change({"id": at, "half": 0.5}, uuid=None) for at in range(5)]
NO_UUID = schema(top={**TOP, "uuid": nullable("string")})
FILES = {
    "avro": avro(NO_UUID, CHANGES, interval=900),
    "deflate": avro(NO_UUID, CHANGES, "deflate", 900),
    "lines": lines(*JSON_CHANGES),
    "array": json.dumps(JSON_CHANGES, indent=2).encode(),
}


@pytest.mark.parametrize("form", FILES)
def test_extracted_record_equals_the_record_in_its_file(form: str) -> None:
    whole = only(FILES[form])
    for at, position in enumerate(whole.positions.tolist()):
        alone = extract(FILES[form], position)
        assert alone is not None
        found = only(alone)
        assert found.metadata == whole.metadata.slice(at, 1)
        assert found.payload == whole.payload.slice(at, 1)
        assert found.source == whole.source
        assert extract(alone, 0) == alone


@pytest.mark.parametrize("form", FILES)
def test_position_beyond_the_last_record_has_none(form: str) -> None:
    assert extract(FILES[form], len(only(FILES[form]).positions)) is None
    assert extract(FILES[form], -1) is None


def test_unreadable_file_has_no_records() -> None:
    assert extract(b"", 0) is None
    assert extract(b"Obj\x01\x00", 0) is None
    assert extract(FILES["avro"][:-3], 0) is None


@pytest.mark.parametrize("line", [b"7", b'{"a":1,"a":2}', b'{"source_metadata":{"table":"t"}}'])
def test_rejected_line_is_rejected_again(line: bytes) -> None:
    (rejected,) = open_file(lines(json_change()) + line).rejected
    assert extract(lines(json_change()) + line, 1) == rejected.raw
    (again,) = open_file(rejected.raw).rejected
    assert again.detail == rejected.detail
