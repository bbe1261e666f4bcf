"""Fields that a record's own schema does not have, from records to tables and back by replay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headgate.config import Contract, Expectation
from headgate.lake.ledger_entries import SchemaEntry, TableEntry
from headgate.testing.lake import stage_in_process
from tests.engine.games import PLAIN, WIDER, GamesLake, extent, record, records, wrapped
from tests.quarantine.replaying import replay

KNOWN = b"\x08\x01"
UNKNOWN = b"\x12\x01x"
EXTENDED = """syntax = "proto2"; message event {
  optional int32 n = 1; optional In in = 2; extensions 100 to 199;
  message In { optional int32 a = 1; extensions 50; } }"""
EXTENSION = b"\xa2\x06\x01e"
NESTED = b"\x12\x03\x90\x03\x01"


def games(folder: Path, **rules: Any) -> GamesLake:
    return GamesLake(folder, contract=Contract(**rules))


def land(lake: GamesLake, batch: int, *values: bytes) -> None:
    lake.start().land(extent(batch), stage_in_process(records(values, first_offset=100 * batch)))


def chess(*payloads: bytes, schema_id: int = PLAIN) -> list[bytes]:
    return [wrapped("chess", schema_id, payload) for payload in payloads]


def landed(lake: GamesLake, table: str = "silver_chess") -> list[tuple[int, int, bytes | None]]:
    rows = lake.rows(table)
    return [(row["_offset"], row["n"], row.get("_unknown_fields")) for row in rows]


def quarantined(lake: GamesLake) -> dict[int, tuple[str, str]]:
    rows = lake.rows("quarantine")
    return {row["_offset"]: (row["reason"], row["detail"]) for row in rows}


def counted(lake: GamesLake) -> list[int | None]:
    rows = lake.ledger.snapshot().entries(TableEntry, table="silver_chess")
    return [row.entry.unknown_fields or None for row in rows]


def test_record_with_unknown_fields_is_in_quarantine_by_default(tmp_path: Path) -> None:
    lake = games(tmp_path)
    land(lake, 0, *chess(KNOWN, KNOWN + UNKNOWN, b"\xff", b"\x0a\x01x", KNOWN))
    assert landed(lake) == [(0, 1, None), (4, 1, None)]
    assert "_unknown_fields" not in lake.rows("silver_chess")[0]
    found = quarantined(lake)
    assert found[1] == ("unknown_fields", "message event has no field 2 (length-delimited)")
    assert found[2][0] == "payload_undecodable"
    assert found[3] == ("unknown_fields", "message event has no field 1 (length-delimited)")
    assert counted(lake) == [None]


def test_kept_bytes_are_in_a_column_that_only_tables_with_some_have(tmp_path: Path) -> None:
    lake = games(tmp_path, unknown_fields="keep")
    go = wrapped("go", PLAIN, KNOWN)
    land(lake, 0, *chess(KNOWN, b"\xff", UNKNOWN + KNOWN, KNOWN), go, record("chess", 7, WIDER))
    assert landed(lake) == [(0, 1, None), (2, 1, UNKNOWN), (3, 1, None), (5, 7, None)]
    assert "_unknown_fields" not in lake.rows("silver_go")[0]
    assert counted(lake) == [1]


def test_ignored_fields_are_counted_and_leave_no_column(tmp_path: Path) -> None:
    lake = games(tmp_path, unknown_fields="ignore")
    land(lake, 0, *chess(KNOWN, KNOWN + UNKNOWN))
    assert landed(lake) == [(0, 1, None), (1, 1, None)]
    assert "_unknown_fields" not in lake.rows("silver_chess")[0]
    assert counted(lake) == [1]


def test_tables_may_have_rules_of_their_own(tmp_path: Path) -> None:
    lake = games(tmp_path, per_table={"silver_g*": {"unknown_fields": "keep"}})
    land(lake, 0, *chess(UNKNOWN), wrapped("go", PLAIN, UNKNOWN))
    assert quarantined(lake).keys() == {0}
    assert landed(lake, "silver_go") == [(1, 0, UNKNOWN)]


@pytest.mark.parametrize("mode", ["quarantine", "keep", "ignore"])
def test_extensions_that_the_message_declares_always_land(tmp_path: Path, mode: str) -> None:
    lake = games(tmp_path, unknown_fields=mode)
    schema_id = lake.register("event", EXTENDED)
    land(lake, 0, *chess(KNOWN + EXTENSION, KNOWN, KNOWN + NESTED, schema_id=schema_id))
    kept = [EXTENSION, None, KNOWN + NESTED] if mode != "ignore" else [None] * 3
    assert landed(lake) == [(at, 1, data) for at, data in enumerate(kept)]
    assert counted(lake) == [2]


def test_extension_beside_an_unknown_field_does_not_excuse_it(tmp_path: Path) -> None:
    lake = games(tmp_path)
    schema_id = lake.register("event", EXTENDED)
    land(lake, 0, *chess(EXTENSION + b"\x78\x01", schema_id=schema_id))
    detail = "message event has no field 15 (varint)"
    assert quarantined(lake) == {0: ("unknown_fields", detail)}


def test_column_of_kept_bytes_is_not_decided_by_the_contract_of_columns(tmp_path: Path) -> None:
    lake = games(tmp_path, columns="freeze", unknown_fields="keep")
    land(lake, 0, *chess(KNOWN))
    land(lake, 1, *chess(KNOWN + UNKNOWN))
    land(lake, 2, *chess(KNOWN), record("chess", 3, WIDER))
    assert landed(lake) == [(0, 1, None), (100, 1, UNKNOWN), (200, 1, None)]
    assert quarantined(lake)[201][0] == "contract_columns"


def test_column_of_kept_bytes_is_never_reported_as_dropped(tmp_path: Path) -> None:
    lake = games(tmp_path, unknown_fields="keep")
    land(lake, 0, *chess(KNOWN + UNKNOWN))
    land(lake, 1, record("chess", 3, WIDER))
    changes = [row.entry.change for row in lake.ledger.snapshot().entries(SchemaEntry)]
    assert changes == ["CreateTable", "AddColumn"]


def test_rule_of_expect_can_read_kept_bytes(tmp_path: Path) -> None:
    lake = games(tmp_path, unknown_fields="keep")
    rule = Expectation(rule="_unknown_fields IS NULL", on_fail="quarantine")
    lake.declare(expect={"silver_*": {"all_known": rule}})
    land(lake, 0, *chess(KNOWN, KNOWN + UNKNOWN, KNOWN))
    assert [offset for offset, *_ in landed(lake)] == [0, 2]
    assert quarantined(lake)[1][0] == "expectation"


@pytest.mark.parametrize(("mode", "kept"), [("keep", UNKNOWN), ("ignore", None)])
def test_replay_lands_records_that_the_contract_allows_now(
    tmp_path: Path, mode: str, kept: bytes | None
) -> None:
    lake = games(tmp_path)
    land(lake, 0, *chess(KNOWN, KNOWN + UNKNOWN))
    assert replay(lake).remaining == {"unknown_fields": 1}
    lake.declare(contract=Contract(unknown_fields=mode))
    assert replay(lake).landed == {"silver_chess": 1}
    assert landed(lake) == [(0, 1, None), (1, 1, kept)]
