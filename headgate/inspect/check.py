"""The mistakes of a pipeline file that can be found without running it."""

from __future__ import annotations

import os
from collections.abc import Iterator

from headgate.config import Finding, Kafka, PipelineConfig, Wrapper, check_pipeline, load_pipeline
from headgate.config.location import is_remote
from headgate.config.model import Path
from headgate.config.predict import in_sql_file, is_sql_file
from headgate.config.yaml import read_marked_yaml
from headgate.errors import HeadgateError, InvalidPipeline, PipelineFileError, StorageError
from headgate.lake.storage import probe, require_reachable


def find_mistakes(path: str | os.PathLike[str], online: bool = False) -> list[Finding]:
    """Return the mistakes of the file; if it has none, those of what it refers to."""
    findings = check_pipeline(path)
    if findings:
        return findings
    return find_mistakes_beyond_the_file(load_pipeline(path), online)


def find_mistakes_beyond_the_file(pipeline: PipelineConfig, online: bool = False) -> list[Finding]:
    """Return the mistakes of the .proto file, and of queries for features and fallbacks.

    A topic for predictions is checked if the registry is a folder; the object storage if `online`.
    """
    found = [*_envelope_mistakes(pipeline), *_prediction_mistakes(pipeline)]
    if online:
        found += _storage_mistakes(pipeline)
    if pipeline.file is None or not os.path.isfile(pipeline.file):
        return [Finding(one.code, one.message, pipeline.file, hint=one.hint) for _, one in found]
    with open(pipeline.file, encoding="utf-8-sig") as opened:
        marked = read_marked_yaml(opened.read(), pipeline.file)
    for path, error in found:
        located = error if isinstance(error, InvalidPipeline) else None
        written = _value_at(marked.data, path)
        if located is not None and isinstance(written, str) and is_sql_file(written):
            located = error = in_sql_file(located, written.strip())
        line, column = (located and located.inside) or (None, None)
        mark = marked.mark_inside(path, line, column)
        marked.found(error.code, error.message, mark, error.hint)
    return marked.findings


def _value_at(data: object, path: Path) -> object:
    for key in path:
        data = data.get(key) if isinstance(data, dict) else None
    return data


def _storage_mistakes(pipeline: PipelineConfig) -> Iterator[tuple[Path, HeadgateError]]:
    """Write, list and delete a file where the pipeline writes; list where it reads."""
    written = {"lake": pipeline.lake, "checkpoint": pipeline.checkpoint}
    for key, url in written.items():
        if is_remote(url):
            try:
                probe(url)
            except StorageError as error:
                yield (key if key in pipeline.model_fields_set else "lake",), error
                return
    if not isinstance(pipeline.source, Kafka):
        try:
            require_reachable(pipeline.source.path)
        except StorageError as error:
            yield ("source",), error


def _envelope_mistakes(pipeline: PipelineConfig) -> Iterator[tuple[Path, HeadgateError]]:
    if not isinstance(pipeline.envelope, Wrapper):
        return
    from headgate.envelopes.open import open_envelope

    try:
        open_envelope(pipeline.envelope)
    except PipelineFileError as error:
        yield ("envelope", "wrapper", "proto"), error


def _prediction_mistakes(pipeline: PipelineConfig) -> Iterator[tuple[Path, HeadgateError]]:
    if not pipeline.predict:
        return
    from headgate.models.features import parse_features
    from headgate.models.publish import topic_encoder
    from headgate.models.serving import parse_fallback

    for name, declared in pipeline.predict.items():
        path: Path = ("predict", name)
        try:
            parse_features(declared.features, declared.key, declared.time, declared.window)
        except InvalidPipeline as error:
            yield (*path, "features"), _named(error, "features")
        try:
            if declared.fallback is not None:
                parse_fallback(declared.fallback)
        except InvalidPipeline as error:
            yield (*path, "fallback"), _named(error, "fallback")
        try:
            if declared.to.topic is not None and pipeline.schema_registry.url is None:
                topic_encoder(pipeline, name)
        except HeadgateError as error:
            yield (*path, "to", "topic"), error


def _named(error: InvalidPipeline, key: str) -> InvalidPipeline:
    message = f"`{key}` {error.message}"
    return InvalidPipeline(error.code, message, error.hint, inside=error.inside)
