"""Loading a pipeline file, with every error that it has."""

from __future__ import annotations

import os
from typing import Any, TypeVar, overload

from pydantic import ValidationError

from headgate.config.location import FileContext
from headgate.config.model import explain
from headgate.config.pipeline import CHANGE_KEYS, RECORD_KEYS, PipelineConfig
from headgate.config.yaml import MarkedYaml, read_marked_yaml
from headgate.errors import Finding, InvalidPipeline

_LARGEST_FILE = 1_000_000

_Model = TypeVar("_Model", bound=PipelineConfig)


@overload
def load_pipeline(path: str | os.PathLike[str]) -> PipelineConfig: ...
@overload
def load_pipeline(path: str | os.PathLike[str], model: type[_Model]) -> _Model: ...
def load_pipeline(
    path: str | os.PathLike[str], model: type[PipelineConfig] = PipelineConfig
) -> PipelineConfig:
    """Load the pipeline that a file declares, as a `PipelineConfig` or a subclass of it.

    Raises `InvalidPipeline`, a `PipelineFileError`, with everything that is wrong as its
    `findings`.
    """
    pipeline, findings = _read(os.fspath(path), model)
    if pipeline is None:
        raise InvalidPipeline.because_of(findings)
    return pipeline


def check_pipeline(path: str | os.PathLike[str]) -> list[Finding]:
    """Return all findings of a file in line order; an empty list if it is valid.

    Uses neither Spark nor the network.
    """
    _, findings = _read(os.fspath(path), PipelineConfig)
    return findings


def _read(file: str, model: type[PipelineConfig]) -> tuple[PipelineConfig | None, list[Finding]]:
    text = _read_text(file)
    if isinstance(text, Finding):
        return None, [text]
    marked = read_marked_yaml(text, file)
    pipeline = _validate(marked, model) if marked.readable else None
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


def _validate(marked: MarkedYaml, model: type[PipelineConfig]) -> PipelineConfig | None:
    try:
        context = FileContext(marked.file)
        # A field that is named after a keyword of Python has its own key in a file: `in`.
        return model.model_validate(marked.data, context=context, by_alias=True, by_name=False)
    except ValidationError as error:
        for path, finding in explain(error, model):
            at_key = finding.code in ("unknown-key", "insecure-option")
            inside = marked.mark_inside(path, finding.line, finding.column)
            mark = marked.mark_of_key(path) if at_key else inside
            marked.found(finding.code, finding.message, mark, finding.hint)
    return None


def pipeline_json_schema() -> dict[str, Any]:
    """Return the JSON schema of a pipeline file, for editors."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **PipelineConfig.model_json_schema(),
        "title": "Headgate pipeline",
        "if": {"properties": {"source": {"required": ["files"]}}, "required": ["source"]},
        "then": {"properties": dict.fromkeys(RECORD_KEYS, False)},
        "else": {"properties": dict.fromkeys(CHANGE_KEYS, False), "required": ["registry"]},
    }
