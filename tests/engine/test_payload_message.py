"""Schemas with several messages, from records to tables and back by replay."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headgate.config.envelopes import PayloadMessages
from headgate.envelopes.wrapper import WrapperEnvelope
from headgate.registry.registry import SchemaText
from tests.quarantine.replaying import replay

from .in_process import ENVELOPE, Pipeline, extent, records, staged_by, wrapped

IN = "message In { int32 a = 5; int32 b = 6; }"
EVENT = "message event { int32 n = 1; In in = 2; }"
PAYLOAD = b"\x08\x07\x12\x02\x28\x09"
ROW = {"n": 7, "in": {"a": 9, "b": 0}}


def games(folder: Path, text: str, **names: str) -> tuple[Pipeline, int]:
    pipeline = Pipeline(folder, envelope=declaring(**names))
    text = f'syntax = "proto3"; package games; {text}'
    return pipeline, pipeline.schemas.register("several", SchemaText("PROTOBUF", text))


def declaring(**names: str) -> WrapperEnvelope:
    return replace(ENVELOPE, payload_messages=PayloadMessages(tuple(names.items())))


def land(pipeline: Pipeline, schema_id: int) -> None:
    values = [wrapped(route, schema_id, PAYLOAD) for route in ("chess", "go")]
    pipeline.run().land(extent(0), staged_by(records(values)))


def landed(pipeline: Pipeline, table: str) -> list[dict[str, object]]:
    rows = pipeline.rows(table)
    return [{key: value for key, value in row.items() if key[0] != "_"} for row in rows]


def quarantined(pipeline: Pipeline) -> list[tuple[str, str]]:
    return [(row["reason"], row["detail"]) for row in pipeline.rows("quarantine")]


@pytest.mark.parametrize("text", [IN + EVENT, EVENT + IN])
def test_payloads_are_the_message_that_no_other_contains(tmp_path: Path, text: str) -> None:
    pipeline, schema_id = games(tmp_path, text)
    land(pipeline, schema_id)
    assert landed(pipeline, "silver_chess") == landed(pipeline, "silver_go") == [ROW]
    assert quarantined(pipeline) == []


def test_ambiguous_payload_is_quarantined_until_its_message_is_declared(tmp_path: Path) -> None:
    pipeline, schema_id = games(tmp_path, IN + EVENT + "message Other { int32 c = 1; }")
    land(pipeline, schema_id)
    detail = "the payload can be any of the messages games.event, games.Other"
    assert quarantined(pipeline) == [("message_ambiguous", detail)] * 2
    assert replay(pipeline).remaining == {"message_ambiguous": 2}

    pipeline.envelope = declaring(chess="event", go="Evnt")
    assert replay(pipeline).landed == {"silver_chess": 1}
    names = "games.In, games.event, games.Other"
    detail = f"the schema has no message Evnt; its messages: {names}"
    assert ("message_unknown", detail) in quarantined(pipeline)

    pipeline.envelope = declaring(**{"*": "games.event"})
    assert replay(pipeline).landed == {"silver_go": 1}
    assert landed(pipeline, "silver_chess") == landed(pipeline, "silver_go") == [ROW]


def test_wrong_message_is_noticed_and_replayed_as_the_right_one(tmp_path: Path) -> None:
    pipeline, schema_id = games(tmp_path, IN + EVENT, **{"*": "In"})
    land(pipeline, schema_id)
    detail = "message games.In has no field 1 (varint), 2 (length-delimited)"
    assert quarantined(pipeline) == [("unknown_fields", detail)] * 2
    pipeline.envelope = declaring()
    assert replay(pipeline).landed == {"silver_chess": 1, "silver_go": 1}
    assert landed(pipeline, "silver_chess") == [ROW]
