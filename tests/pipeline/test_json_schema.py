from __future__ import annotations

import json

from headgate.pipeline import Kafka, Pipeline, pipeline_json_schema


def test_json_schema_has_every_key_and_what_it_means() -> None:
    schema = pipeline_json_schema()
    assert list(schema["properties"]) == list(Pipeline.model_fields)
    assert schema["required"] == ["name", "source", "registry", "envelope", "lake"]
    assert schema["additionalProperties"] is False
    assert all(each["description"] for each in schema["properties"].values())
    assert set(schema["$defs"]["Kafka"]["properties"]) == set(Kafka.model_fields)


def test_json_schema_describes_the_file_and_not_the_models() -> None:
    schema = pipeline_json_schema()
    source = schema["$defs"]["SourceKeys"]
    assert set(source["properties"]) == {"kafka", "delta"}
    assert (source["minProperties"], source["maxProperties"]) == (1, 1)
    assert {"type": "string"} in schema["properties"]["registry"]["anyOf"]
    assert schema["properties"]["trigger"]["default"] == "10 seconds"


def test_json_schema_is_json() -> None:
    assert json.loads(json.dumps(pipeline_json_schema())) == pipeline_json_schema()
