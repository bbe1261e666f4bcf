from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel

from headgate.config import (
    ChangePipeline,
    Datastream,
    Expectation,
    Files,
    GoldQuery,
    GoldUnion,
    Kafka,
    Merge,
    Pipeline,
    pipeline_json_schema,
)

NEEDED = {
    Pipeline: {"name", "source", "registry", "envelope", "lake"},
    ChangePipeline: {"name", "source", "envelope", "lake"},
}


def _definition(name: str) -> dict[str, Any]:
    found: dict[str, Any] = pipeline_json_schema()["$defs"][name]
    return found


@pytest.mark.parametrize("model", NEEDED)
def test_json_schema_has_every_key_and_what_it_means(model: type[BaseModel]) -> None:
    schema = _definition(model.__name__)
    assert list(schema["properties"]) == list(model.model_fields)
    assert set(schema["required"]) == NEEDED[model]
    assert schema["additionalProperties"] is False
    assert all(each["description"] for each in schema["properties"].values())


@pytest.mark.parametrize(
    "model", [Kafka, Files, Datastream, Merge, Expectation, GoldQuery, GoldUnion]
)
def test_json_schema_has_every_key_of_a_part(model: type[BaseModel]) -> None:
    keys = {name.rstrip("_") for name in model.model_fields}
    assert set(_definition(model.__name__)["properties"]) == keys


@pytest.mark.parametrize("model", NEEDED)
def test_json_schema_lets_sql_and_rules_stand_alone(model: type[BaseModel]) -> None:
    properties = _definition(model.__name__)["properties"]
    gold = properties["gold"]["additionalProperties"]["anyOf"]
    assert {"type": "string"} in gold
    assert {"$ref": "#/$defs/GoldUnion"} in gold
    rules = properties["expect"]["additionalProperties"]["additionalProperties"]["anyOf"]
    assert {"type": "string"} in rules


def test_json_schema_describes_the_file_and_not_the_models() -> None:
    for name, choices in {
        "SourceKeys": {"kafka", "delta"},
        "ChangeSourceKeys": {"files"},
        "ChangeEnvelopeKeys": {"datastream"},
    }.items():
        chooser = _definition(name)
        assert set(chooser["properties"]) == choices
        assert (chooser["minProperties"], chooser["maxProperties"]) == (1, 1)
    stream, changes = _definition("Pipeline"), _definition("ChangePipeline")
    assert {"type": "string"} in stream["properties"]["registry"]["anyOf"]
    assert stream["properties"]["trigger"]["default"] == "10 seconds"
    assert {"type": "string"} in changes["properties"]["envelope"]["anyOf"]
    assert _definition("Merge")["properties"]["horizon"]["default"] == "3650 days"


def test_json_schema_tells_the_two_kinds_apart() -> None:
    schema = pipeline_json_schema()
    assert schema["then"] == {"$ref": "#/$defs/ChangePipeline"}
    assert schema["else"] == {"$ref": "#/$defs/Pipeline"}


def test_json_schema_is_json() -> None:
    assert json.loads(json.dumps(pipeline_json_schema())) == pipeline_json_schema()
