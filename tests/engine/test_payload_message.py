"""Schemas with several messages, from records to tables and back by replay."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.testing.lake import stage_in_process
from tests.engine.games import GamesLake, extent, records, wrapped, wrapper
from tests.quarantine.replaying import replay

IN = "message In { int32 a = 5; int32 b = 6; }"
EVENT = "message event { int32 n = 1; In in = 2; }"
PAYLOAD = b"\x08\x07\x12\x02\x28\x09"
ROW = {"n": 7, "in": {"a": 9, "b": 0}}


def games(folder: Path, text: str, **names: str) -> tuple[GamesLake, int]:
    lake = GamesLake(folder, envelope=wrapper(**names))
    text = f'syntax = "proto3"; package games; {text}'
    return lake, lake.register("several", text)


def land(lake: GamesLake, schema_id: int) -> None:
    values = [wrapped(route, schema_id, PAYLOAD) for route in ("chess", "go")]
    lake.start().land(extent(0), stage_in_process(records(values)))


def landed(lake: GamesLake, table: str) -> list[dict[str, object]]:
    rows = lake.rows(table)
    return [{key: value for key, value in row.items() if key[0] != "_"} for row in rows]


def quarantined(lake: GamesLake) -> list[tuple[str, str]]:
    return [(row["reason"], row["detail"]) for row in lake.rows("quarantine")]


@pytest.mark.parametrize("text", [IN + EVENT, EVENT + IN])
def test_payloads_are_the_message_that_no_other_contains(tmp_path: Path, text: str) -> None:
    lake, schema_id = games(tmp_path, text)
    land(lake, schema_id)
    assert landed(lake, "silver_chess") == landed(lake, "silver_go") == [ROW]
    assert quarantined(lake) == []


def test_ambiguous_payload_is_quarantined_until_its_message_is_declared(tmp_path: Path) -> None:
    lake, schema_id = games(tmp_path, IN + EVENT + "message Other { int32 c = 1; }")
    land(lake, schema_id)
    detail = "the payload can be any of the messages games.event, games.Other"
    assert quarantined(lake) == [("message_ambiguous", detail)] * 2
    assert replay(lake).remaining == {"message_ambiguous": 2}

    lake.declare(envelope=wrapper(chess="event", go="Evnt"))
    assert replay(lake).landed == {"silver_chess": 1}
    names = "games.In, games.event, games.Other"
    detail = f"the schema has no message Evnt; its messages: {names}"
    assert ("message_unknown", detail) in quarantined(lake)

    lake.declare(envelope=wrapper(**{"*": "games.event"}))
    assert replay(lake).landed == {"silver_go": 1}
    assert landed(lake, "silver_chess") == landed(lake, "silver_go") == [ROW]


def test_wrong_message_is_noticed_and_replayed_as_the_right_one(tmp_path: Path) -> None:
    lake, schema_id = games(tmp_path, IN + EVENT, **{"*": "In"})
    land(lake, schema_id)
    detail = "message games.In has no field 1 (varint), 2 (length-delimited)"
    assert quarantined(lake) == [("unknown_fields", detail)] * 2
    lake.declare(envelope=wrapper())
    assert replay(lake).landed == {"silver_chess": 1, "silver_go": 1}
    assert landed(lake, "silver_chess") == [ROW]
