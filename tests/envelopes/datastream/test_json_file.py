from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.envelopes.datastream.changes import METADATA, SourceTable
from headgate.envelopes.datastream.file import open_file
from headgate.reasons import Reason
from headgate.schema.field_metadata import has_field_metadata
from tests.envelopes.datastream.writing import (
    AT,
    MILLIS,
    UUID,
    avro,
    change,
    first_metadata,
    json_change,
    lines,
    only,
    schema,
)

TEXT, WHOLE, FRACTION = pa.string(), pa.int64(), pa.float64()


def column(*values: str) -> pa.Array:
    """Return the column for values given as JSON."""
    texts = [json.dumps(json_change({"c": "?"})).replace('"?"', value) for value in values]
    found = only("\n".join(texts).encode()).payload
    return found["c"] if found.num_columns else None


@pytest.mark.parametrize("form", ["lines", "array", "pretty array", "mark"])
def test_change_is_read_in_every_format(form: str) -> None:
    one, other = json_change(), json_change({"id": 2, "name": "Zoë"})
    content = {
        "lines": lines(one) + b"\r\n  \n" + lines(other).strip(),
        "array": json.dumps([one, other]).encode(),
        "pretty array": json.dumps([one, other], indent=4, ensure_ascii=False).encode(),
        "mark": b"\xef\xbb\xbf" + lines(one, other),
    }[form]
    changes = only(content)
    assert changes.source == SourceTable("shop", None, "users")
    assert changes.payload.to_pylist() == [{"id": 1, "name": "Ada"}, {"id": 2, "name": "Zoë"}]
    assert changes.positions.tolist() == [0, 1]


def test_json_has_the_same_metadata_as_avro() -> None:
    assert first_metadata(lines(json_change())) == first_metadata(avro(schema(), [change()]))
    assert only(lines(json_change())).metadata.schema == METADATA


@pytest.mark.parametrize(
    ("values", "kind", "found"),
    [
        (["1", "null", "-3"], WHOLE, [1, None, -3]),
        (["true", "null"], pa.bool_(), [True, None]),
        (['"a"', '"1"'], TEXT, ["a", "1"]),
        (["1.5", "2.50"], FRACTION, [1.5, 2.5]),
        (["1", "0.1", "1e3"], FRACTION, [1.0, 0.1, 1000.0]),
        (["18446744073709551615", "1"], pa.decimal128(38, 0), [Decimal(2**64 - 1), Decimal(1)]),
        (["1" * 39, "1"], TEXT, ["1" * 39, "1"]),
        (["0.12345678901234567890", "1.10"], TEXT, ["0.12345678901234567890", "1.10"]),
        (["9007199254740993", "0.5"], TEXT, ["9007199254740993", "0.5"]),
        (["1e400", "1"], TEXT, ["1e400", "1"]),
        (["1e99999999999999999999", "1"], TEXT, ["1e99999999999999999999", "1"]),
        (["1e-400"], TEXT, ["1e-400"]),
        (["-0.0"], FRACTION, [-0.0]),
        (["1", '"a"'], TEXT, ["1", "a"]),
        (["true", "1"], TEXT, ["true", "1"]),
        (["true", "1.50", '"x"', "null"], TEXT, ["true", "1.50", "x", None]),
        (['{"b":[1.10,"ä",null,true]}'], TEXT, ['{"b":[1.10,"ä",null,true]}']),
        (["[]", "{}"], TEXT, ["[]", "{}"]),
    ],
)
def test_column_has_the_type_of_its_values(values: list[str], kind: Any, found: Any) -> None:
    array = column(*values)
    assert array.type == kind
    assert array.to_pylist() == found


def test_column_that_is_always_null_is_left_out() -> None:
    assert column("null", "null") is None
    changes = only(lines(json_change({"id": None, "x": 1}), json_change({"id": None})))
    assert changes.payload.to_pylist() == [{"x": 1}, {"x": None}]
    empty = only(lines(json_change({}), json_change({"id": None}))).payload
    assert (empty.num_rows, empty.num_columns) == (2, 0)


def test_type_is_inferred_from_the_whole_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.envelopes.datastream.json_file._CHUNK_RECORDS", 2)
    whole = [{"n": 1, "t": 1}, {"n": 2, "t": True}, {"n": 0.5, "t": "x"}, {"late": True}, {"n": 3}]
    found = only(lines(*map(json_change, whole))).payload
    assert found.to_pylist() == [
        {"n": 1.0, "t": "1", "late": None},
        {"n": 2.0, "t": "true", "late": None},
        {"n": 0.5, "t": "x", "late": None},
        {"n": None, "t": None, "late": True},
        {"n": 3.0, "t": None, "late": None},
    ]
    assert all(map(has_field_metadata, found.schema))


def test_tables_are_separated_in_order() -> None:
    names = ["users", "orders", "users"]
    changes = [json_change({"id": at}, {"table": name}) for at, name in enumerate(names)]
    users, orders = open_file(lines(*changes)).changes
    assert (users.source.table, users.positions.tolist()) == ("users", [0, 2])
    assert (orders.payload.to_pylist(), orders.positions.tolist()) == ([{"id": 1}], [1])


@pytest.mark.parametrize(
    ("line", "detail"),
    [
        (b"[1,", "not JSON"),
        (b'{"a":1}}', "not JSON"),
        (b'{"a":\xff}', "not JSON"),
        (b'{"a":"\x01"}', "not JSON"),
        (b"12", "not a JSON object"),
        (b'"text"', "not a JSON object"),
        (b'{"a":1,"b":{"c":1,"c":2}}', "an object has a key twice"),
        (b'{"a":"\\ud83d"}', "a string has a lone surrogate"),
        (b'{"\\uDC00":1}', "a string has a lone surrogate"),
        (b'{"a":NaN}', "NaN is not a JSON number"),
        (b'{"a":' + b"9" * 5_000 + b"}", "4300 digits"),
        (b'{"a":' + b"[" * 150 + b"]" * 150 + b"}", "nests deeper than 100"),
        (b'{"a":' + b"[" * 5_000 + b"]" * 5_000 + b"}", ""),
        (b'{"a":1}', "the record names no table"),
        (b'{"source_metadata":{"table":""},"payload":{}}', "the record names no table"),
        (b'{"source_metadata":{"table":[]},"payload":{}}', "the record names no table"),
        (b'{"source_metadata":{"table":"t"}}', "the record has no payload"),
        (b'{"source_metadata":{"table":"t"},"payload":null}', "the record has no payload"),
        (b'{"source_metadata":{"table":"t"},"payload":[1]}', "the record has no payload"),
    ],
)
def test_line_that_is_not_a_change_is_rejected_with_its_bytes(line: bytes, detail: str) -> None:
    opened = open_file(lines(json_change()) + line + b"\n" + lines(json_change()))
    (changes,) = opened.changes
    assert changes.positions.tolist() == [0, 2]
    (rejected,) = opened.rejected
    assert (rejected.position, rejected.reason) == (1, Reason.CHANGE_UNREADABLE)
    assert detail in rejected.detail
    assert rejected.raw == line + b"\n"


def test_surrogate_pair_is_one_character() -> None:
    assert column('"\\ud83d\\ude00"').to_pylist() == ["😀"]


def test_array_element_that_is_not_a_change_is_rejected() -> None:
    inside = ['{"a":1,"a":2}', "7", '{"a":"\\ud83d"}', '{"a":NaN}']
    content = f"[{json.dumps(json_change())},\n{', '.join(inside)}]".encode()
    opened = open_file(content)
    assert [one.position for one in opened.rejected] == [1, 2, 3, 4]
    assert [one.raw for one in opened.rejected] == [f"[{one}]\n".encode() for one in inside]
    assert opened.changes[0].positions.tolist() == [0]


@pytest.mark.parametrize(
    "content",
    [b"id,name\n1,Ada\n", b"\x00\x01\x02", b"PAR1....", b"[1 2]", b"[1]]", b"[\xff]", b"[{]"],
)
def test_file_that_is_not_json_is_unreadable(content: bytes) -> None:
    opened = open_file(content)
    assert opened.unreadable
    assert (opened.changes, opened.rejected) == ([], [])


def test_last_line_that_can_never_be_json_is_rejected() -> None:
    opened = open_file(lines(json_change()) + b'{"a" 1')
    assert not opened.unfinished
    assert [one.position for one in opened.rejected] == [1]


@pytest.mark.parametrize(
    "told_moment",
    [
        "2024-05-10T05:36:59.578Z",
        "2024-05-10T05:36:59.578",
        "2024-05-10 05:36:59.578000000",
        "2024-05-10T07:36:59.578+02:00",
        MILLIS,
        str(MILLIS),
        float(MILLIS),
    ],
)
def test_timestamp_is_read_in_every_form(told_moment: Any) -> None:
    one = json_change(source_timestamp=told_moment)
    assert first_metadata(lines(one))["_source_timestamp"] == AT
    mixed = only(lines(one, json_change(source_timestamp="2024-05-10T05:36:59.578")))
    assert mixed.metadata["_source_timestamp"].to_pylist() == [AT, AT]


@pytest.mark.parametrize("wrong", ["soon", True, "9999-99-99", "1e30", 10**17, {"a": 1}, [1]])
def test_invalid_timestamp_stays_in_more(wrong: Any) -> None:
    found = first_metadata(lines(json_change(source_timestamp=wrong)))
    assert "_source_timestamp" not in found
    assert json.loads(found["_more"]) == {"source_timestamp": wrong}


def test_metadata_of_other_types_is_converted() -> None:
    source = {"log_position": "17", "scn": 2.0, "ssn": "4.5", "is_deleted": "TRUE", "tx_id": 9}
    keys = [1, "a", 1.5, None, {"b": 1}]
    one = json_change(source=source, sort_keys=keys, object=["x"], event={"n": 1.10})
    found = first_metadata(lines(one))
    assert (found["_log_position"], found["_scn"], found["_is_deleted"]) == (17, 2, True)
    assert found["_tx_id"] == "9"
    assert found["_sort_keys"] == ["1", "a", "1.5", None, '{"b":1}']
    assert json.loads(found["_more"]) == {
        "object": ["x"],
        "event": {"n": 1.1},
        "source_metadata": {"ssn": "4.5"},
    }


@pytest.mark.parametrize(
    ("kind", "is_deleted", "method", "expected"),
    [
        ("DELETE", None, "mysql-cdc-binlog", ("DELETE", True)),
        ("update_delete", None, "mysql-cdc-binlog", ("UPDATE-DELETE", True)),
        ("Insert", None, "mysql-cdc-binlog", ("INSERT", False)),
        ("UPDATE", True, "mysql-cdc-binlog", ("UPDATE", True)),
        (None, True, "mysql-cdc-binlog", ("DELETE", True)),
        (None, False, "oracle_dump", ("INSERT", False)),
        (None, None, "mysql-backfill-fulldump", ("INSERT", False)),
        (None, None, "oracle-cdc-logminer", (None, False)),
        (None, False, None, (None, False)),
    ],
)
def test_change_type_and_deletion_flag_complete_each_other(
    kind: Any, is_deleted: Any, method: Any, expected: Any
) -> None:
    source = {"change_type": kind, "is_deleted": is_deleted}
    found = first_metadata(lines(json_change(source=source, read_method=method)))
    assert (found.get("_change_type"), found["_is_deleted"]) == expected


def test_missing_uuid_is_derived_from_the_content() -> None:
    one = json_change({"id": 1})
    del one["uuid"]
    other = json_change({"id": 2}, uuid="")
    first, second = only(lines(one, other)).metadata["_uuid"].to_pylist()
    assert len({first, second, UUID}) == 3
    assert only(lines(other, one)).metadata["_uuid"].to_pylist() == [second, first]
    array = json.dumps([one, other]).encode()
    assert only(array).metadata["_uuid"].to_pylist() == [first, second]


def test_only_the_table_is_required_metadata() -> None:
    content = b'{"source_metadata":{"table":"t"},"payload":{"id":1}}'
    found = first_metadata(content)
    assert found.keys() == {"_uuid", "_table", "_is_deleted"}
    assert only(content).source == SourceTable(None, None, "t")


def test_reserved_columns_and_twins_get_unique_names() -> None:
    names = only(lines(json_change({"_file": 1, "a": 1, "A": 2, "ä ö": 3}))).payload.schema.names
    assert names[0].startswith("_file__")
    assert names[1] == "a"
    assert names[2].startswith("A__")
    assert len({name.lower() for name in names}) == 4


def test_too_many_columns_are_refused() -> None:
    wide = [json_change({f"c{row}_{at}": 1 for at in range(2_000)}) for row in range(6)]
    assert "too many columns" in str(open_file(lines(*wide)).unreadable)


def test_too_many_tables_are_refused() -> None:
    many = [json_change({"id": 1}, {"table": f"t{at}"}) for at in range(1_001)]
    assert "more than 1000 tables" in str(open_file(lines(*many)).unreadable)
    in_avro = [change(source={"table": f"t{at}"}) for at in range(1_001)]
    assert "more than 1000 tables" in str(open_file(avro(schema(), in_avro)).unreadable)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    SCALARS, lambda inside: st.lists(inside) | st.dictionaries(st.text(), inside), max_leaves=6
)


def is_text(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


@given(st.lists(st.dictionaries(st.sampled_from("abc"), VALUES.filter(is_text)), max_size=5))
@settings(deadline=None, max_examples=150)
def test_values_are_unchanged(payloads: list[dict[str, Any]]) -> None:
    payloads = [json.loads(json.dumps(one, allow_nan=False)) for one in payloads if finite(one)]
    opened = open_file(lines(*map(json_change, payloads)))
    assert (opened.unreadable, opened.rejected) == (None, [])
    found = [row for one in opened.changes for row in one.payload.to_pylist()]
    assert len(found) == len(payloads)
    for name in "abc":
        before = [one.get(name) for one in payloads]
        after = [one.get(name) for one in found]
        for was, now in zip(before, after, strict=True):
            assert now == was or same(now, was), (was, now)


def same(now: Any, was: Any) -> bool:
    """Whether a value in a string column is the JSON of the original."""
    return isinstance(now, str) and json.loads(now) == was


def finite(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True
