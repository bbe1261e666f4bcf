"""Reads a pipeline file, or says everything that is wrong with it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import ValidationError
from pydantic.json_schema import models_json_schema

from headgate.config.location import Origin
from headgate.config.model import Path, explain
from headgate.config.pipeline import ChangePipeline, Pipeline
from headgate.config.sources import ChangeSourceKeys, SourceKeys
from headgate.config.yaml import MarkedYaml, read_marked_yaml
from headgate.errors import Finding, InvalidPipeline, UsageError, nearest

_LARGEST_FILE = 1_000_000


def load_pipeline(path: str | os.PathLike[str]) -> Pipeline | ChangePipeline:
    """The pipeline that a file declares, of records or of change files.

    Raises `InvalidPipeline`, a `PipelineFileError`, with all that is wrong as its `findings`.
    """
    pipeline, findings = _read(os.fspath(path))
    if pipeline is None:
        raise InvalidPipeline.because_of(findings)
    return pipeline


def load_stream_pipeline(path: str | os.PathLike[str]) -> Pipeline:
    """The same for who can do nothing with change files."""
    pipeline = load_pipeline(path)
    if isinstance(pipeline, Pipeline):
        return pipeline
    raise UsageError(
        "bad-argument",
        f"{os.fspath(path)} declares change files; this command is for streams of records only",
        hint="headgate check, status, tables and doctor work with both kinds of pipelines",
    )


def check_pipeline(path: str | os.PathLike[str]) -> list[Finding]:
    """Everything that is wrong with a file, in the order of its lines; nothing if all is well.

    Asks neither Spark nor any server.
    """
    _, findings = _read(os.fspath(path))
    return findings


def _read(file: str) -> tuple[Pipeline | ChangePipeline | None, list[Finding]]:
    text = _read_text(file)
    if isinstance(text, Finding):
        return None, [text]
    marked = read_marked_yaml(text, file)
    pipeline = _validate(marked) if marked.readable else None
    findings = sorted(marked.findings, key=lambda each: (each.line or 0, each.column or 0))
    return (None if findings else pipeline), findings


def _read_text(file: str) -> str | Finding:
    try:
        with open(file, "rb") as opened:
            content = opened.read(_LARGEST_FILE + 1)
    except OSError as error:
        return Finding("file-not-found", f"cannot read the file: {error.strerror}", file)
    if len(content) > _LARGEST_FILE:
        return Finding("not-yaml", "the file is larger than 1 MB; is it a pipeline file?", file)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
    return Finding("not-yaml", "the file is not UTF-8 text", file, line, 1)


def _validate(marked: MarkedYaml) -> Pipeline | ChangePipeline | None:
    model = ChangePipeline if _is_of_changes(marked.data) else Pipeline
    try:
        return model.model_validate(marked.data, context=Origin(marked.file))
    except ValidationError as error:
        for path, found in explain(error, model):
            finding = _with_key_of_the_other_kind(found, path, model)
            at_key = finding.code in ("unknown-key", "insecure-option")
            inside = marked.mark_inside(path, finding.line, finding.column)
            mark = marked.mark_of_key(path) if at_key else inside
            marked.found(finding.code, finding.message, mark, finding.hint)
    return None


def _is_of_changes(data: object) -> bool:
    """Whether source or envelope, one of them perhaps mistyped, are those of change files."""
    if not isinstance(data, Mapping):
        return False
    source, envelope = data.get("source"), data.get("envelope")
    sources = [*SourceKeys.model_fields, *ChangeSourceKeys.model_fields]
    chosen = source if isinstance(source, Mapping) else [source]
    has_files = any(nearest(str(each), sources) == "files" for each in chosen)
    return has_files or envelope == "datastream" or _has_key(envelope, "datastream")


def _has_key(data: object, key: str) -> bool:
    return isinstance(data, Mapping) and key in data


def _with_key_of_the_other_kind(
    finding: Finding, path: Path, model: type[Pipeline] | type[ChangePipeline]
) -> Finding:
    other = Pipeline if model is ChangePipeline else ChangePipeline
    if finding.code != "unknown-key" or len(path) != 1 or path[0] not in other.model_fields:
        return finding
    kind = "streams of records" if other is Pipeline else "change files, `source: {files: …}`"
    return replace(finding, hint=f"it is for {kind}")


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
