from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headgate.envelopes.datastream.changes import METADATA, SourceTable
from headgate.envelopes.datastream.file import open_file
from headgate.reasons import Reason
from headgate.schema.field_metadata import has_field_metadata, is_required
from tests.envelopes.datastream.writing import (
    AT,
    COMPRESSED,
    MILLIS,
    MYSQL,
    TOP,
    UUID,
    avro,
    block,
    change,
    compressed_avro,
    first_metadata,
    header,
    logical,
    nullable,
    only,
    payload_bytes,
    record,
    rows,
    schema,
)

pytestmark = pytest.mark.usefixtures("either_way")


def test_mysql_change_has_all_metadata() -> None:
    changes = only(avro(schema(), [change()]))
    assert changes.source == SourceTable("shop", None, "users")
    assert changes.metadata.schema == METADATA
    assert changes.payload.to_pylist() == [{"id": 1, "name": "Ada"}]
    assert changes.positions.tolist() == [0]
    assert first_metadata(avro(schema(), [change()])) == {
        "_uuid": UUID,
        "_change_type": "UPDATE-INSERT",
        "_is_deleted": False,
        "_source_timestamp": AT,
        "_read_timestamp": AT,
        "_read_method": "mysql-cdc-binlog",
        "_stream": "projects/1/locations/here/streams/shop",
        "_object": "shop_users",
        "_schema_key": "fb57c3235f48c2f937c1652c56d3d961cdb20c1a",
        "_sort_keys": [str(MILLIS), "mysql-bin.000014", "81151"],
        "_primary_keys": ["id"],
        "_database": "shop",
        "_table": "users",
        "_log_file": "mysql-bin.000014",
        "_log_position": 81151,
    }


def test_old_mysql_file_has_neither_sort_keys_nor_primary_keys() -> None:
    top = {name: kind for name, kind in TOP.items() if name != "sort_keys"}
    source = {name: kind for name, kind in MYSQL.items() if name != "primary_keys"}
    found = first_metadata(avro(schema(source=source, top=top), [change()]))
    assert not {"_sort_keys", "_primary_keys", "_more"} & found.keys()
    assert found["_log_position"] == 81151


def test_oracle_change() -> None:
    source = {
        "schema": "string",
        "table": "string",
        "database": "string",
        "row_id": "string",
        "scn": "long",
        "rs_id": "string",
        "ssn": "long",
        "tx_id": nullable("string"),
        "is_deleted": "boolean",
        "change_type": "string",
    }
    values = {
        "schema": "HR",
        "table": "LOCATIONS",
        "database": "XE",
        "row_id": "AAAEALAAEAAAACdAAB",
        "scn": 2_011_342,
        "rs_id": " 0x000135.0001e5e4.0010 ",
        "ssn": 3,
        "tx_id": "0500120008040000",
        "is_deleted": True,
        "change_type": "DELETE",
    }
    keys = [MILLIS, 2_011_342, " 0x000135.0001e5e4.0010 ", 3]
    one = change(source=values, read_method="oracle-cdc-logminer", sort_keys=keys)
    content = avro(schema({"LOCATION_ID": nullable("float")}, source), [one])
    changes = only(content)
    found = first_metadata(content)
    assert changes.source == SourceTable("XE", "HR", "LOCATIONS")
    assert changes.payload.to_pylist() == [{"LOCATION_ID": None}]
    assert (found["_scn"], found["_ssn"], found["_row_id"]) == (2_011_342, 3, values["row_id"])
    assert found["_rs_id"] == " 0x000135.0001e5e4.0010 "
    assert found["_tx_id"] == "0500120008040000"
    assert found["_sort_keys"] == [str(key) for key in keys]


def test_postgresql_change_has_its_transaction_as_text() -> None:
    source = {
        "schema": "string",
        "table": "string",
        "is_deleted": nullable("boolean"),
        "change_type": nullable("string"),
        "tx_id": nullable("long"),
        "lsn": nullable("string"),
        "primary_keys": nullable({"type": "array", "items": "string"}),
    }
    values = {
        "schema": "public",
        "tx_id": 363552,
        "lsn": "16/CB002DB0",
        "primary_keys": None,
        "change_type": "INSERT",
    }
    content = avro(schema(source=source), [change(source=values, read_method="postgresql-cdc")])
    found = first_metadata(content)
    assert only(content).source == SourceTable(None, "public", "users")
    assert (found["_tx_id"], found["_lsn"]) == ("363552", "16/CB002DB0")
    assert "_primary_keys" not in found


@pytest.mark.parametrize("form", COMPRESSED)
def test_every_codec_is_read(form: str) -> None:
    changes = [change({"id": at, "name": "x" * at}) for at in range(50)]
    assert rows(compressed_avro(form, schema(), changes)) == [one["payload"] for one in changes]


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz"])
def test_files_of_fastavro_are_read(codec: str) -> None:
    changes = [change({"id": at, "name": None}) for at in range(500)]
    content = avro(schema(), changes, codec, 1_000)
    assert [one["id"] for one in rows(content)] == list(range(500))


def test_unknown_codec_is_unreadable() -> None:
    opened = open_file(header(schema(), "zlib9"))
    assert opened.unreadable is None
    content = header(schema(), "zlib9") + block(payload_bytes(schema(), change()), 1)
    assert open_file(content).unreadable == "unknown codec 'zlib9'"


def test_changes_are_grouped_by_table_in_order() -> None:
    names = ["users", "orders", "users", "users", "orders"]
    changes = [change({"id": at, "name": None}, {"table": name}) for at, name in enumerate(names)]
    users, orders = open_file(avro(schema(), changes)).changes
    assert (users.source.table, orders.source.table) == ("users", "orders")
    assert (users.positions.tolist(), orders.positions.tolist()) == ([0, 2, 3], [1, 4])
    assert users.payload["id"].to_pylist() == [0, 2, 3]
    assert orders.metadata["_table"].to_pylist() == ["orders", "orders"]


def test_change_without_table_or_row_is_rejected_and_the_others_stay() -> None:
    writer_schema = schema(record("x", id="int"), {**MYSQL, "table": nullable("string")})
    writer_schema["fields"][-1]["type"] = nullable(record("payload", id="int"))
    changes = [
        change({"id": 1}),
        change({"id": 2}, {"table": None}),
        change({"id": 3}) | {"payload": None},
        change({"id": 4}),
    ]
    opened = open_file(avro(writer_schema, changes))
    (kept,) = opened.changes
    assert kept.payload["id"].to_pylist() == [1, 4]
    assert kept.positions.tolist() == [0, 3]
    assert [(one.position, one.reason, one.detail) for one in opened.rejected] == [
        (1, Reason.CHANGE_UNREADABLE, "the record names no table"),
        (2, Reason.CHANGE_UNREADABLE, "the record has no payload"),
    ]
    assert [one.source for one in opened.rejected] == [None, SourceTable("shop", None, "users")]
    again = open_file(opened.rejected[1].raw)
    assert [one.detail for one in again.rejected] == ["the record has no payload"]


def test_value_that_does_not_fit_its_schema_rejects_its_change_alone() -> None:
    wide = schema({"price": logical("bytes", "decimal", precision=9, scale=2)})
    narrow = schema({"price": logical("bytes", "decimal", precision=3, scale=2)})
    plain = schema({"price": "bytes"})
    values = [bytes([1]), bytes([127, 127, 127]), bytes([2])]
    content = payload_bytes(plain, *(change({"price": one}) for one in values))
    assert len(rows(header(wide) + block(content, 3))) == 3
    opened = open_file(header(narrow) + block(content, 3))
    (kept,) = opened.changes
    assert kept.positions.tolist() == [0, 2]
    (rejected,) = opened.rejected
    assert (rejected.position, rejected.reason) == (1, Reason.PAYLOAD_UNDECODABLE)
    assert open_file(rejected.raw).rejected[0].detail == rejected.detail


@pytest.mark.parametrize(
    ("writer_schema", "why"),
    [
        (record("x", payload=record("payload", id="int")), "no `source_metadata`"),
        (record("x", source_metadata=record("s", table="string")), "no `payload`"),
        (schema({"type": "string"}), "no `payload` record"),
        ("string", "no `source_metadata`"),
        ({"type": "moon"}, "cannot use the schema"),
        ({"type": "record", "name": "x", "fields": 3}, "cannot use the schema"),
    ],
)
def test_file_without_changes_in_its_schema_is_unreadable(writer_schema: Any, why: str) -> None:
    assert why in str(open_file(header(writer_schema)).unreadable)


def test_file_without_records_has_no_changes() -> None:
    assert open_file(header(schema())).changes == []
    assert open_file(header(schema()) + block(b"", 0)).unreadable is None


def test_columns_have_metadata_on_required_fields() -> None:
    writer_schema = schema({"id": "long", "name": nullable("string")})
    found = only(avro(writer_schema, [change({"id": 1, "name": None})])).payload.schema
    assert [(has_field_metadata(one), is_required(one)) for one in found] == [
        (True, True),
        (True, False),
    ]


def test_reserved_columns_keep_their_names() -> None:
    writer_schema = schema({"_uuid": "string", "_FILE": "string", "a-b": "int"})
    names = only(
        avro(writer_schema, [change({"_uuid": "x", "_FILE": "y", "a-b": 1})])
    ).payload.schema.names
    assert names[0].startswith("_uuid__")
    assert names[1].startswith("_FILE__")
    assert names[2].startswith("a_b__")


def test_unknown_fields_keep_their_structure_in_more() -> None:
    top = {**TOP, "event": nullable("string"), "share": "double"}
    source = {**MYSQL, "server": record("Server", id="int"), "blank": "null"}
    one = change(source={"server": {"id": 7}, "blank": None}, event="x", share=0.5)
    content = avro(schema(source=source, top=top), [one])
    assert first_metadata(content)["_more"] == (
        '{"event":"x","share":0.5,"source_metadata":{"server":{"id":7}}}'
    )


def test_metadata_of_other_types_is_converted() -> None:
    top = {**TOP, "read_timestamp": "string", "source_timestamp": "long", "uuid": "long"}
    source = {**MYSQL, "log_position": "string", "is_deleted": "int", "table": "int"}
    values = {"log_position": "0081151", "is_deleted": 1, "table": 12}
    one = change(source=values, read_timestamp="2024-05-10 07:36:59.578+02:00", uuid=5)
    one["source_timestamp"] = MILLIS
    found = first_metadata(avro(schema(source=source, top=top), [one]))
    assert (found["_read_timestamp"], found["_source_timestamp"]) == (AT, AT)
    assert (found["_log_position"], found["_is_deleted"]) == (81151, True)
    assert (found["_table"], found["_uuid"]) == ("12", "5")


def test_metadata_that_cannot_be_converted_is_not_lost() -> None:
    top = {**TOP, "read_timestamp": "string", "sort_keys": "string"}
    source = {**MYSQL, "log_position": "string"}
    changes = [
        change(source={"log_position": text}, read_timestamp="yesterday", sort_keys="a,b")
        for text in ("9", "far", "99999999999999999999")
    ]
    metadata = only(avro(schema(source=source, top=top), changes)).metadata
    assert metadata["_log_position"].to_pylist() == [9, None, None]
    assert metadata["_more"].to_pylist() == [
        '{"read_timestamp":"yesterday","sort_keys":"a,b"}',
        '{"read_timestamp":"yesterday","sort_keys":"a,b","source_metadata":{"log_position":"far"}}',
        '{"read_timestamp":"yesterday","sort_keys":"a,b",'
        '"source_metadata":{"log_position":"99999999999999999999"}}',
    ]


def test_missing_uuid_is_derived_from_the_content() -> None:
    writer_schema = schema(top={**TOP, "uuid": nullable("string")})
    one, other = change(uuid=None), change({"id": 2, "name": None}, uuid="")
    first, second = only(avro(writer_schema, [one, other])).metadata["_uuid"].to_pylist()
    assert first != second
    assert only(avro(writer_schema, [one])).metadata["_uuid"].to_pylist() == [first]
    assert only(avro(writer_schema, [other, one])).metadata["_uuid"].to_pylist() == [second, first]


def test_database_may_have_a_dash_in_its_name() -> None:
    writer_schema = schema(name="ea-main_users") | {"namespace": "ea-main.my table"}
    content = header(writer_schema) + block(payload_bytes(schema(), change()), 1)
    assert rows(content) == [{"id": 1, "name": "Ada"}]


def test_many_blocks_are_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.envelopes.datastream.avro._PORTION_SIZE", 4_000)
    changes = [change({"id": at, "name": str(at)}) for at in range(300)]
    changes[150]["source_metadata"]["table"] = "orders"
    users, orders = open_file(avro(schema(), changes, interval=700)).changes
    assert orders.positions.tolist() == [150]
    assert users.positions.tolist() == [at for at in range(300) if at != 150]
    assert np.array_equal(users.payload["id"], users.positions)
    assert isinstance(users.metadata, pa.RecordBatch)


def test_fields_of_a_record_may_be_in_any_order() -> None:
    writer_schema = schema()
    writer_schema["fields"].reverse()
    assert rows(avro(writer_schema, [change()])) == [{"id": 1, "name": "Ada"}]
