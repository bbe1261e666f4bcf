"""The layouts of files from different databases and releases of Datastream."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from headgate.envelopes.datastream.file import open_file
from headgate.reasons import Reason
from tests.envelopes.datastream.writing import (
    AT,
    MYSQL,
    TIMESTAMP_MILLIS,
    TOP,
    avro,
    change,
    fields,
    first_metadata,
    json_change,
    lines,
    logical,
    nullable,
    only,
    record,
    rows,
    schema,
)

ORACLE = {
    "schema": "string",
    "table": "string",
    "database": "string",
    "row_id": nullable("string"),
    "scn": nullable("long"),
    "is_deleted": nullable("boolean"),
    "change_type": nullable("string"),
    "ssn": nullable("long"),
    "rs_id": nullable("string"),
    "tx_id": nullable("string"),
    "log_file": nullable("string"),
}
VARCHAR = record("varchar", value="string", length="int")
ZONED = record(
    "timestampTz",
    timestamp=logical("long", "timestamp-micros"),
    offset=logical("int", "time-millis"),
)


def source(**values: Any) -> dict[str, Any]:
    """Return the metadata of a source other than MySQL; all other fields are null."""
    return {**dict.fromkeys(change()["source_metadata"]), **values}


def oracle(**values: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "schema": "WINE",
        "table": "CASKS",
        "database": "CELLAR",
        **values,
    }
    return source(**dict.fromkeys(set(ORACLE) - set(metadata)), **metadata)


def on_field(name: str, kind: Any, meaning: str) -> dict[str, Any]:
    return {"name": name, "type": kind, "logicalType": meaning}


def early_oracle(**meanings: str) -> dict[str, Any]:
    """Return a schema of early files: without a change type, and with logical types on fields."""
    payload = record("payload", CASK_ID="float", GRAPE=nullable(VARCHAR), FILLED=nullable(ZONED))
    payload["fields"] += [on_field(name, "long", meaning) for name, meaning in meanings.items()]
    whole = record("WINE_CASKS", stream_name="string", read_method="string", object="string")
    whole["fields"] += [
        *fields(uuid="string"),
        on_field("read_timestamp", "long", "timestamp-millis"),
        on_field("source_timestamp", "long", "timestamp-millis"),
        *fields(
            source_metadata=record(
                "source_metadata",
                schema="string",
                table="string",
                database="string",
                row_id="string",
            ),
            payload=payload,
        ),
    ]
    return whole


def cask(number: int, **columns: int) -> dict[str, Any]:
    return change(
        {
            "CASK_ID": float(number),
            "GRAPE": {"value": "Syrah", "length": 40},
            "FILLED": {"timestamp": AT, "offset": 3_600_000},
            **columns,
        },
        oracle(row_id=f"AAAB{number}"),
        uuid=f"cask-{number}",
        read_method="oracle_dump",
        read_timestamp=1_715_319_419_578,
        source_timestamp=1_715_319_419_578,
    )


def test_early_file_of_oracle() -> None:
    content = avro(early_oracle(EMPTIED="timestamp-micros"), [cask(1, EMPTIED=1_000_000)])
    assert rows(content) == [
        {
            "CASK_ID": 1.0,
            "GRAPE": "Syrah",
            "FILLED": AT,
            "FILLED_offset": 3_600_000_000,
            "EMPTIED": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        }
    ]
    found = first_metadata(content)
    assert (found["_change_type"], found["_is_deleted"]) == ("INSERT", False)
    assert (found["_source_timestamp"], found["_row_id"]) == (AT, "AAAB1")


def test_logical_type_on_a_field_that_fits_no_value_is_ignored() -> None:
    beyond = 1 << 60
    writer_schema = early_oracle(EMPTIED="timestamp-millis", SOLD="timestamp-micros")
    content = avro(writer_schema, [cask(number, EMPTIED=beyond, SOLD=5) for number in (1, 2)])
    assert [(row["EMPTIED"], row["SOLD"]) for row in rows(content)] == [(beyond, 5)] * 2
    assert first_metadata(content)["_source_timestamp"] == AT


def test_logical_type_on_a_field_that_fits_some_values_counts() -> None:
    writer_schema = early_oracle(EMPTIED="timestamp-millis")
    opened = open_file(avro(writer_schema, [cask(1, EMPTIED=1 << 60), cask(2, EMPTIED=1_000)]))
    (changes,) = opened.changes
    (row,) = changes.payload.to_pylist()
    assert row["EMPTIED"] == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert [(one.position, one.reason) for one in opened.rejected] == [
        (0, Reason.PAYLOAD_UNDECODABLE)
    ]


def mined(**values: Any) -> bytes:
    """Return a LogMiner change: the sort keys are the last field, and there is no primary key."""
    payload = {
        "CASK_ID": nullable("long"),
        "GRAPE": nullable(logical("string", "varchar", length=20)),
        "PRICE": nullable(logical("bytes", "decimal", precision=8, scale=2)),
        "CODE": nullable(logical("string", "number")),
    }
    top = {name: kind for name, kind in TOP.items() if name != "sort_keys"}
    writer_schema = schema(payload, ORACLE, top, "WINE_CASKS")
    writer_schema["fields"] += fields(sort_keys=TOP["sort_keys"])
    row = {"CASK_ID": 7, "GRAPE": "Gamay", "PRICE": Decimal("12.50"), "CODE": "1E2"}
    return avro(writer_schema, [change(row, oracle(**values), read_method="oracle-cdc-logminer")])


def test_file_of_oracle_that_was_mined() -> None:
    content = mined(
        row_id="AAAE5XAAEAAAADMAAB",
        scn=7_044_811,
        rs_id=" 0x0000d4.000091be.0010 ",
        ssn=1,
        tx_id="CAACAAUKAAA=",
        log_file="/u01/archive/o1_mf_1_212.arc",
        change_type="UPDATE",
        is_deleted=False,
    )
    assert rows(content) == [
        {"CASK_ID": 7, "GRAPE": "Gamay", "PRICE": Decimal("12.50"), "CODE": "1E2"}
    ]
    found = first_metadata(content)
    assert (found["_scn"], found["_ssn"]) == (7_044_811, 1)
    assert found["_rs_id"] == " 0x0000d4.000091be.0010 "
    assert "_primary_keys" not in found


@pytest.mark.parametrize("is_deleted", [True, False, None])
@pytest.mark.parametrize("kind", ["DELETE", "UPDATE-DELETE", "update_delete"])
def test_change_type_marks_a_deletion_without_the_flag(kind: str, is_deleted: bool | None) -> None:
    found = first_metadata(mined(change_type=kind, is_deleted=is_deleted))
    assert found["_is_deleted"] is True


def test_file_of_postgresql_has_arrays_of_any_depth() -> None:
    numbers = {
        "type": "record",
        "name": "multidimensionalArray_levels",
        "fields": [
            {
                "name": "nestedArray",
                "type": nullable({"type": "array", "items": "multidimensionalArray_levels"}),
            },
            {"name": "elementValue", "type": nullable("long")},
        ],
    }
    metadata = {
        "schema": "string",
        "table": "string",
        "is_deleted": nullable("boolean"),
        "change_type": nullable("string"),
        "tx_id": nullable("long"),
        "lsn": nullable("string"),
        "primary_keys": nullable({"type": "array", "items": "string"}),
    }
    payload = {
        "id": nullable("long"),
        "levels": nullable(numbers),
        "notes": nullable(logical("string", "json")),
        "seal": nullable("bytes"),
    }
    inner = {"nestedArray": None, "elementValue": 4}
    row = {
        "id": 3,
        "levels": {"nestedArray": [inner], "elementValue": None},
        "notes": '{"a": 1}',
        "seal": b"\xde\xad",
    }
    one = change(
        row,
        source(schema="public", table="tanks", tx_id=77, lsn="16/CB002DB0", change_type="INSERT"),
        read_method="postgresql-cdc",
    )
    content = avro(schema(payload, metadata, name="public_tanks"), [one])
    (found,) = rows(content)
    assert (found["id"], found["notes"], found["seal"]) == (3, '{"a": 1}', b"\xde\xad")
    assert found["levels"]["elementValue"] is None
    assert json.loads(found["levels"]["nestedArray"]) == [inner]
    assert (first_metadata(content)["_tx_id"], first_metadata(content)["_lsn"]) == (
        "77",
        "16/CB002DB0",
    )
    assert "_database" not in first_metadata(content)


BY_GTID = {
    "table": "string",
    "database": "string",
    "primary_keys": nullable({"type": "array", "items": "string"}),
    "binlog_file": nullable("string"),
    "binlog_position": nullable("long"),
    "gtid": nullable("string"),
    "change_type": nullable("string"),
    "is_deleted": nullable("boolean"),
}
GTID = "3e11fa47-71ca-11e1-9e33-c80aa9429562:23"


def test_mysql_gtid_file_has_other_names_for_the_log() -> None:
    place = {"binlog_file": "mysql-bin.000003", "binlog_position": 197, "gtid": GTID}
    found = first_metadata(avro(schema(source=BY_GTID), [change(source=place, read_method="cdc")]))
    assert (found["_log_file"], found["_log_position"]) == ("mysql-bin.000003", 197)
    assert found["_gtid"] == GTID
    assert "_more" not in found


def test_first_of_two_names_wins_and_the_other_stays_in_more() -> None:
    both = {"log_file": "a.1", "binlog_file": "b.2", "primary_keys": ["id"]}
    types = MYSQL | {"binlog_file": nullable("string")}
    one = change(source=both)
    other = change(source={"log_file": None, "binlog_file": "b.3"}, uuid="other")
    files = [avro(schema(source=types), [one, other])]
    files.append(lines(*(json_change(source=values["source_metadata"]) for values in (one, other))))
    for content in files:
        found = only(content).metadata
        assert found["_log_file"].to_pylist() == ["a.1", "b.3"]
        assert [text and json.loads(text) for text in found["_more"].to_pylist()] == [
            {"source_metadata": {"binlog_file": "b.2"}},
            None,
        ]


def test_sql_server_file_has_another_name_for_the_key() -> None:
    types = {
        "schema": "string",
        "table": "string",
        "database": "string",
        "lsn": nullable("string"),
        "tx_id": nullable("string"),
        "change_type": nullable("string"),
        "is_deleted": nullable("boolean"),
        "replication_index": nullable({"type": "array", "items": "string"}),
    }
    metadata = source(
        schema="dbo",
        table="vats",
        database="winery",
        lsn="00000025:00000728:0003",
        tx_id="1234",
        change_type="INSERT",
        replication_index=["id"],
    )
    content = avro(schema(source=types), [change(source=metadata, read_method="sqlserver-cdc")])
    assert first_metadata(content)["_primary_keys"] == ["id"]
    assert first_metadata(content)["_lsn"] == "00000025:00000728:0003"


@pytest.mark.parametrize(
    "text",
    [
        "2024-05-10T05:36:59.578Z",
        "2024-05-10 05:36:59.578",
        "2024-05-10T05:36:59.578",
        "2024-05-10T05:36:59.578000000Z",
        "2024-05-10T07:36:59.578+02:00",
    ],
)
def test_json_timestamps_have_many_forms(text: str) -> None:
    found = first_metadata(lines(json_change(source_timestamp=text, read_timestamp=text)))
    assert (found["_source_timestamp"], found["_read_timestamp"]) == (AT, AT)


@pytest.mark.parametrize(("scn", "ssn"), [(1_706_664, 0), ("1706664", "0")])
def test_json_numbers_may_be_strings(scn: Any, ssn: Any) -> None:
    place = {"scn": scn, "ssn": ssn, "rs_id": "", "tx_id": None, "log_file": "", "row_id": "AAA"}
    metadata = {
        "schema": "HR",
        "table": "JOBS",
        "database": "XE",
        "primary_keys": None,
        **place,
    }
    one = json_change(read_method="oracle-backfill") | {"source_metadata": metadata}
    found = first_metadata(lines(one))
    assert (found["_scn"], found["_ssn"], found["_rs_id"]) == (1_706_664, 0, "")
    assert (found["_change_type"], found["_is_deleted"]) == ("INSERT", False)


def test_events_without_a_table_are_rejected() -> None:
    document = {"database": "shop", "collection": "carts", "change_type": "CREATE"}
    one = json_change({"_id": '"5"', "data": "{}"}, read_method="cdc")
    opened = open_file(lines(one | {"source_metadata": document}))
    assert [rejected.detail for rejected in opened.rejected] == ["the record names no table"]
    types = {"object_name": "string", "domain": "string"}
    writer_schema = schema(source=types, top={**TOP, "read_timestamp": TIMESTAMP_MILLIS})
    event = change(read_method="salesforce-cdc")
    event["source_metadata"] = {"object_name": "Lead", "domain": "here"}
    assert "`table`" in str(open_file(avro(writer_schema, [event])).unreadable)
