"""Contracts, from records to tables: what lands, what is blocked, and what the ledger records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headgate.config import Contract, Mode
from headgate.engine.events import SchemaChanged
from headgate.lake.ledger_entries import SchemaEntry, TableEntry
from headgate.schema.changes import AddColumn, Outcome, RetypeColumn
from headgate.testing.lake import stage_in_process
from tests.engine.games import ENVELOPE, PLAIN, RETYPED, WIDER, GamesLake, extent, record, records

STRICT = [Mode.FREEZE, Mode.DISCARD_ROW, Mode.DISCARD_VALUE]


def games(folder: Path, **rules: Any) -> GamesLake:
    return GamesLake(folder, contract=Contract(**rules))


def land(lake: GamesLake, batch: int, *values: bytes) -> None:
    lake.start().land(extent(batch), stage_in_process(records(values, first_offset=100 * batch)))


def recorded_changes(lake: GamesLake) -> list[tuple[str, str, int | None]]:
    entries = [row.entry for row in lake.ledger.snapshot().entries(SchemaEntry)]
    silver = [one for one in entries if one.table != "quarantine"]
    return [(one.change, one.outcome, one.rows) for one in silver]


def quarantined(lake: GamesLake) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in lake.rows("quarantine"):
        found.setdefault(row["reason"], []).append(row["_offset"])
    return found


def test_frozen_columns_refuse_the_whole_schema(tmp_path: Path) -> None:
    lake = games(tmp_path, columns="freeze")
    land(lake, 0, record("chess", 1))
    land(lake, 1, record("chess", 2), record("chess", 3, WIDER))
    assert [row["n"] for row in lake.rows("silver_chess")] == [1, 2]
    assert "name" not in lake.rows("silver_chess")[0]
    assert quarantined(lake) == {"contract_columns": [101]}
    assert recorded_changes(lake)[1:] == [("AddColumn", "refused", 1)]


def test_row_with_a_new_value_is_discarded(tmp_path: Path) -> None:
    lake = games(tmp_path, types="discard_row")
    land(lake, 0, record("chess", 1))
    land(lake, 1, record("chess", 2), record("chess", 3, RETYPED))
    assert [row["n"] for row in lake.rows("silver_chess")] == [1, 2]
    assert quarantined(lake) == {"contract_types": [101]}
    [row] = lake.rows("quarantine")
    assert row["value"] == record("chess", 3, RETYPED)
    assert recorded_changes(lake)[1:] == [("RetypeColumn", "quarantined", 1)]


def test_value_alone_is_discarded_and_counted(tmp_path: Path) -> None:
    lake = games(tmp_path, columns="discard_value", types="discard_value")
    land(lake, 0, record("chess", 1))
    land(lake, 1, record("chess", 2, WIDER), record("chess", 3, RETYPED))
    assert [row["n"] for row in lake.rows("silver_chess")] == [1, 2, None]
    assert quarantined(lake) == {}
    assert sorted(recorded_changes(lake)[1:]) == [
        ("AddColumn", "discarded", 1),
        ("RetypeColumn", "discarded", 1),
    ]
    land(lake, 2, record("chess", 4, WIDER), record("chess", 5, WIDER))
    newest = lake.ledger.snapshot().entries(TableEntry, table="silver_chess")[-1]
    assert newest.entry.discarded == {"name": 2}


@pytest.mark.parametrize("mode", STRICT, ids=str)
def test_new_route_does_not_create_a_table(tmp_path: Path, mode: Mode) -> None:
    lake = games(tmp_path, per_table={"silver_go*": {"tables": mode}})
    land(lake, 0, record("chess", 1), record("go", 2), record("go", 3))
    assert lake.offsets() == {"silver_chess": [0], "quarantine": [1, 2]}
    assert quarantined(lake) == {"contract_tables": [1, 2]}
    assert [change for change, *_ in recorded_changes(lake)] == ["CreateTable", "CreateTable"]


def test_new_table_has_the_columns_of_its_oldest_schema_whichever_task_reads_it(
    tmp_path: Path,
) -> None:
    lake = games(tmp_path, columns="discard_row")
    newer = records([record("chess", 1, WIDER), record("go", 2, WIDER)])
    older = records([record("chess", 3)], first_offset=10)
    lake.start().land(extent(0), stage_in_process(newer, older))
    assert lake.offsets() == {"quarantine": [0], "silver_chess": [10], "silver_go": [1]}
    assert "name" not in lake.rows("silver_chess")[0]
    assert "name" in lake.rows("silver_go")[0]


def test_refused_schema_is_recorded_once(tmp_path: Path) -> None:
    lake = games(tmp_path, columns="freeze")
    land(lake, 0, record("chess", 1))
    for batch in range(1, 4):
        land(lake, batch, record("chess", batch, WIDER))
    assert [one for one in recorded_changes(lake) if one[0] == "AddColumn"] == [
        ("AddColumn", "refused", 1)
    ]
    changes = [event.change for event in lake.events if isinstance(event, SchemaChanged)]
    assert AddColumn("name", "string", outcome=Outcome.REFUSED) in changes
    assert len(quarantined(lake)["contract_columns"]) == 3


def test_relaxed_contract_applies_the_schema(tmp_path: Path) -> None:
    lake = games(tmp_path, columns="freeze")
    land(lake, 0, record("chess", 1))
    land(lake, 1, record("chess", 2, WIDER))
    lake.declare(contract=Contract())
    land(lake, 2, record("chess", 3, WIDER))
    assert [row["name"] for row in lake.rows("silver_chess")] == [None, "x"]
    assert recorded_changes(lake)[-1] == ("AddColumn", "applied", None)


def test_column_that_is_no_longer_sent_is_recorded_once(tmp_path: Path) -> None:
    lake = games(tmp_path)
    land(lake, 0, record("chess", 1, WIDER))
    land(lake, 1, record("chess", 2, RETYPED))
    land(lake, 2, record("chess", 3), record("chess", 4, RETYPED))
    kinds = [change for change, *_ in recorded_changes(lake)]
    assert kinds == ["CreateTable", "RetypeColumn", "DropColumn", "SameColumns"]


def test_older_schema_after_a_newer_one_drops_nothing(tmp_path: Path) -> None:
    lake = games(tmp_path)
    land(lake, 0, record("chess", 1, WIDER))
    land(lake, 1, record("chess", 2, PLAIN))
    assert [change for change, *_ in recorded_changes(lake)] == ["CreateTable", "SameColumns"]


def test_changes_name_the_schema_that_requires_them(tmp_path: Path) -> None:
    lake = games(tmp_path)
    land(lake, 0, record("chess", 1))
    land(lake, 1, record("chess", 1), record("chess", 2, WIDER), record("chess", 3, RETYPED))
    changed = [event for event in lake.events if isinstance(event, SchemaChanged)]
    assert [(event.change, event.schema_ids) for event in changed[1:]] == [
        (AddColumn("name", "string"), (WIDER,)),
        (RetypeColumn("n", "int", "string", "n__string"), (RETYPED,)),
    ]


def test_fields_that_the_schema_does_not_have_are_counted(tmp_path: Path) -> None:
    lake = games(tmp_path, unknown_fields="ignore")
    newer = b"\x08\x01\x12\x01x"
    message = ENVELOPE.decoder.message(game_name="chess", schema_id=PLAIN, payload=newer)
    land(lake, 0, record("chess", 1), bytes(message.SerializeToString()))
    [table] = lake.ledger.snapshot().entries(TableEntry, table="silver_chess")
    assert table.entry.unknown_fields == 1
    assert [row["n"] for row in lake.rows("silver_chess")] == [1, 1]
