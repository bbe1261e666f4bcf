"""The pipeline file's JSON Schema, for editors that complete and check YAML by it."""

from __future__ import annotations

from typing import Any

from headgate.pipeline.pipeline import Pipeline


def pipeline_json_schema() -> dict[str, Any]:
    schema = Pipeline.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "Headgate pipeline"
    return schema
