"""The mistakes of a pipeline file that can be found without running it."""

from __future__ import annotations

import os

from headgate.config import Finding, PipelineConfig, Wrapper, check_pipeline, load_pipeline
from headgate.config.yaml import read_marked_yaml
from headgate.errors import PipelineFileError


def find_mistakes(path: str | os.PathLike[str]) -> list[Finding]:
    """Return the mistakes of the file; if it has none, those of its .proto file."""
    findings = check_pipeline(path)
    if findings:
        return findings
    return find_envelope_mistakes(load_pipeline(path))


def find_envelope_mistakes(pipeline: PipelineConfig) -> list[Finding]:
    """Return the mistakes of the .proto file, located in the pipeline file if there is one."""
    if not isinstance(pipeline.envelope, Wrapper):
        return []
    from headgate.envelopes.open import open_envelope

    try:
        open_envelope(pipeline.envelope)
    except PipelineFileError as error:
        if pipeline.file is None or not os.path.isfile(pipeline.file):
            return [Finding(error.code, error.message, pipeline.file, hint=error.hint)]
        with open(pipeline.file, encoding="utf-8-sig") as opened:
            marked = read_marked_yaml(opened.read(), pipeline.file)
        marked.found(
            error.code,
            error.message,
            marked.mark_of_value(("envelope", "wrapper", "proto")),
            error.hint,
        )
        return marked.findings
    return []
