from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel

from headgate.config import (
    Datastream,
    Expectation,
    Files,
    GoldQuery,
    GoldUnion,
    Kafka,
    Merge,
    PipelineConfig,
    pipeline_json_schema,
)
from headgate.config.model import fields_by_key
from headgate.config.pipeline import CHANGE_KEYS, RECORD_KEYS


def _definition(name: str) -> dict[str, Any]:
    found: dict[str, Any] = pipeline_json_schema()["$defs"][name]
    return found


def test_json_schema_has_every_key_with_a_description() -> None:
    schema = pipeline_json_schema()
    assert list(schema["properties"]) == list(fields_by_key(PipelineConfig))
    assert set(schema["required"]) == {"name", "source", "envelope", "lake"}
    assert schema["additionalProperties"] is False
    assert all(each["description"] for each in schema["properties"].values())


@pytest.mark.parametrize(
    "model", [Kafka, Files, Datastream, Merge, Expectation, GoldQuery, GoldUnion]
)
def test_json_schema_has_every_key_of_a_part(model: type[BaseModel]) -> None:
    keys = {name.rstrip("_") for name in model.model_fields}
    assert set(_definition(model.__name__)["properties"]) == keys


def test_json_schema_allows_sql_and_rules_as_text() -> None:
    properties = pipeline_json_schema()["properties"]
    gold = properties["gold"]["additionalProperties"]["anyOf"]
    assert {"type": "string"} in gold
    assert {"$ref": "#/$defs/GoldUnion"} in gold
    rules = properties["expect"]["additionalProperties"]["additionalProperties"]["anyOf"]
    assert {"type": "string"} in rules


def test_json_schema_describes_the_file_and_not_the_models() -> None:
    for name, choices in {
        "SourceKeys": {"kafka", "delta", "files"},
        "EnvelopeKeys": {"confluent", "wrapper", "datastream"},
    }.items():
        chooser = _definition(name)
        assert set(chooser["properties"]) == choices
        assert (chooser["minProperties"], chooser["maxProperties"]) == (1, 1)
    properties = pipeline_json_schema()["properties"]
    assert {"type": "string"} in properties["registry"]["anyOf"]
    assert properties["trigger"]["default"] == "10 seconds"
    assert {"type": "string"} in properties["envelope"]["anyOf"]
    assert _definition("Merge")["properties"]["horizon"]["default"] == "3650 days"


def test_json_schema_excludes_the_keys_of_the_other_kind_of_source() -> None:
    schema = pipeline_json_schema()
    assert schema["then"] == {"properties": dict.fromkeys(RECORD_KEYS, False)}
    assert schema["else"]["properties"] == dict.fromkeys(CHANGE_KEYS, False)
    assert schema["else"]["required"] == ["registry"]


def test_json_schema_is_json() -> None:
    assert json.loads(json.dumps(pipeline_json_schema())) == pipeline_json_schema()
