"""Whether a pipeline's source can be reached, and its registry if it has one."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from deltalake import DeltaTable
from pyarrow.fs import FileSystem, FileType

from headgate.errors import RegistryUnavailable
from headgate.inspect.check import Check, fail, ok, tried, warn
from headgate.pipeline import ChangePipeline, Duration, Kafka, Pipeline, Secret
from headgate.schema.open_registry import open_registry
from headgate.schema.registry_http import HttpRegistry
from headgate.source.kafka_client import topics_found

_PATIENCE = 5


def check_source(pipeline: Pipeline | ChangePipeline) -> list[Check]:
    secrets = [tried(f"secret {each}", partial(_secret, each)) for each in _secrets(pipeline)]
    if isinstance(pipeline, ChangePipeline):
        path = pipeline.source.path
        return [*secrets, tried("change files", lambda: _folder(path))]
    source = pipeline.source
    return [
        *secrets,
        tried("broker", lambda: _broker(source))
        if isinstance(source, Kafka)
        else tried("source table", lambda: _table(source.path)),
        tried("registry", lambda: _registry(pipeline)),
    ]


def _broker(source: Kafka) -> Check:
    found = topics_found(source, _PATIENCE)
    missing = [topic for topic in source.topics if topic not in found]
    if missing:
        return fail(
            "broker",
            f"{source.servers} answers, but has no topic {', '.join(missing)}",
            "check `topics`; headgate simulate makes a topic and fills it",
        )
    if not found:
        return warn(
            "broker",
            f"{source.servers} answers, but no topic matches `{source.pattern}` yet",
            "check `pattern`; topics that come later are found while the pipeline runs",
        )
    listed = ", ".join(
        f"{topic} ({count} {'partition' if count == 1 else 'partitions'})"
        for topic, count in sorted(found.items())[:5]
    )
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    return ok("broker", f"{source.servers} has {listed}{more}")


def _table(path: str) -> Check:
    if not DeltaTable.is_deltatable(path):
        return fail(
            "source table",
            f"there is no Delta table at {path}",
            "check `source.delta.path`; headgate simulate games --to delta makes one",
        )
    table = DeltaTable(path)
    if "value" not in [field.name for field in table.schema().fields]:
        return fail("source table", f"{path} has no column `value`", "check `source.delta.path`")
    return ok("source table", f"{path} at version {table.version()}")


def _folder(path: str) -> Check:
    files, inside = FileSystem.from_uri(path)
    if files.get_file_info(inside).type != FileType.Directory:
        return fail(
            "change files", f"there is no folder {path}", "check `source.files.path`, or make it"
        )
    return ok("change files", f"{path} can be read")


def _registry(pipeline: Pipeline) -> Check:
    # Of a registry that is down, a run is more patient than a person.
    declared = pipeline.registry.model_copy(update={"timeout": Duration(seconds=_PATIENCE)})
    registry = open_registry(declared)
    if isinstance(registry, HttpRegistry):
        try:
            count = len(registry.subjects())
        except RegistryUnavailable as error:
            fix = "check `registry`; headgate up starts one on this machine"
            return fail("registry", f"{declared.url}: {error.message}", fix)
        return ok("registry", f"{declared.url} has {count} subject{'' if count == 1 else 's'}")
    folder = Path(declared.folder or "")
    schemas = [path for path in folder.glob("[0-9]*.*") if path.suffix in (".proto", ".avsc")]
    if not schemas:
        return warn(
            "registry",
            f"there are no schemas in {folder}",
            "put schemas there as <id>.proto or <id>.avsc; headgate simulate games --to delta does",
        )
    return ok("registry", f"{len(schemas)} schemas in {folder}")


def _secret(secret: Secret) -> Check:
    secret.resolve()
    return ok(f"secret {secret}", "is there")


def _secrets(pipeline: Pipeline | ChangePipeline) -> list[Secret]:
    """Every secret that the pipeline refers to, once."""
    values: list[object] = [*pipeline.spark.values()]
    if isinstance(pipeline, Pipeline):
        values.extend(value for _, value in pipeline.registry)
    if isinstance(source := pipeline.source, Kafka):
        values.extend(source.options.values())
        if source.security is not None:
            values.extend(value for _, value in source.security)
    return list(dict.fromkeys(each for each in values if isinstance(each, Secret)))
