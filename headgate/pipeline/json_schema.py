"""The pipeline file's JSON Schema, for editors that complete and check YAML by it."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import models_json_schema

from headgate.pipeline.change_pipeline import ChangePipeline
from headgate.pipeline.pipeline import Pipeline

_OF_CHANGES = {
    "anyOf": [
        {"properties": {"source": {"required": ["files"]}}, "required": ["source"]},
        {
            "properties": {
                "envelope": {"anyOf": [{"const": "datastream"}, {"required": ["datastream"]}]}
            },
            "required": ["envelope"],
        },
    ]
}


def pipeline_json_schema() -> dict[str, Any]:
    """One schema for both kinds of pipelines, told apart as `load_pipeline` does."""
    models = (Pipeline, ChangePipeline)
    _, schema = models_json_schema([(model, "validation") for model in models])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Headgate pipeline",
        "type": "object",
        "if": _OF_CHANGES,
        "then": {"$ref": "#/$defs/ChangePipeline"},
        "else": {"$ref": "#/$defs/Pipeline"},
        **schema,
    }
