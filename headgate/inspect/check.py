"""The mistakes of a pipeline file that can be found without running it."""

from __future__ import annotations

import os

from headgate.config import Finding, Wrapper, check_pipeline, load_pipeline
from headgate.config.yaml import read_marked_yaml
from headgate.errors import PipelineFileError


def find_mistakes(path: str | os.PathLike[str]) -> list[Finding]:
    """Return the mistakes of the file; if it has none, those of its .proto file."""
    findings = check_pipeline(path)
    if findings:
        return findings
    envelope = load_pipeline(path).envelope
    if not isinstance(envelope, Wrapper):
        return []
    from headgate.envelopes.open import open_envelope

    try:
        open_envelope(envelope)
    except PipelineFileError as error:
        file = os.fspath(path)
        with open(file, encoding="utf-8-sig") as opened:
            marked = read_marked_yaml(opened.read(), file)
        marked.found(
            error.code,
            error.message,
            marked.mark_of_value(("envelope", "wrapper", "proto")),
            error.hint,
        )
        return marked.findings
    return []
