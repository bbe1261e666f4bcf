"""The checks of `headgate doctor`, the most important first."""

from __future__ import annotations

import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path

from pyarrow.fs import FileSystem, FileType

from headgate.catalog.hive import require_reachable
from headgate.catalog.recorded import Recorded
from headgate.cluster.settings import is_cluster, master_of
from headgate.cluster.shared_folders import paths_of_tasks
from headgate.config import Catalog, Duration, Kafka, PipelineConfig, Secret, load_pipeline
from headgate.config.location import is_remote
from headgate.errors import (
    CheckpointError,
    HeadgateError,
    LandingError,
    RegistryUnavailable,
    SetupError,
)
from headgate.inspect.check import find_mistakes
from headgate.inspect.landed_rows import read_landed_rows
from headgate.inspect.ledger import open_ledger
from headgate.inspect.status import batch_in_progress, find_current_run, pending_tables
from headgate.inspect.tables import landed_tables, tables_behind
from headgate.jars.jars import headgate_home, jar_paths
from headgate.jars.java import find_java
from headgate.lab.broker import broker_answers
from headgate.lab.database import NAME, Database, database_answers
from headgate.lab.process import is_free, recorded_process
from headgate.lab.registry import registry_answers
from headgate.lab.services import Services, find, find_database, read_services
from headgate.lake.layout import current_streams
from headgate.lake.ledger import Ledger
from headgate.lake.storage import probe
from headgate.lake.tables import open_table
from headgate.models.publish import topic_encoder
from headgate.registry.open import opened_registry
from headgate.sources.checkpoint import Checkpoint, CheckpointState, resume
from headgate.sources.kafka import topics_found


class CheckState(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Check:
    """What was checked, the result, and how to fix it."""

    name: str
    state: CheckState
    detail: str
    fix: str | None = None


def ok(name: str, detail: str) -> Check:
    return Check(name, CheckState.OK, detail)


def warn(name: str, detail: str, fix: str | None = None) -> Check:
    return Check(name, CheckState.WARN, detail, fix)


def fail(name: str, detail: str, fix: str | None = None) -> Check:
    return Check(name, CheckState.FAIL, detail, fix)


def tried(name: str, check: Callable[[], Check]) -> Check:
    """Run a check; an exception makes it a failed one, so that the others still run."""
    try:
        return check()
    except HeadgateError as error:
        return fail(name, error.message, error.hint)
    except Exception as error:
        return fail(name, f"{type(error).__name__}: {error}".splitlines()[0])


_OLDEST_PYTHON = (3, 11)
_GIGABYTE = 1_000_000_000
_LOW_SPACE = 5 * _GIGABYTE
_NO_SPACE = 1 * _GIGABYTE


def check_machine(folder: Path) -> list[Check]:
    """Check Python, Java, jars, and free space on the disk of the folder."""
    return [
        tried("Python", _python),
        tried("Java", _java),
        tried("jars for Spark", _spark_jars),
        tried("jars for services", _service_jars),
        tried("disk", lambda: check_disk(folder)),
    ]


def check_disk(folder: Path) -> Check:
    """Check the free space where the folder is or would be."""
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    detail = f"{free / _GIGABYTE:.1f} GB free at {folder}"
    if free < _NO_SPACE:
        return fail("disk", detail, "free disk space: a run needs at least 1 GB")
    if free < _LOW_SPACE:
        return warn("disk", detail, "free disk space, or put `lake` on a larger disk")
    return ok("disk", detail)


def _python() -> Check:
    detail = f"{platform.python_version()} at {sys.executable}"
    if sys.version_info < _OLDEST_PYTHON:
        return fail("Python", detail, "use Python 3.11 or newer")
    return ok("Python", detail)


def _java() -> Check:
    java = find_java()
    return ok("Java", f"{java.major} at {java.path}")


def _spark_jars() -> Check:
    jars = jar_paths("spark")
    return ok("jars for Spark", f"{len(jars)} in {headgate_home() / 'jars'}")


def _service_jars() -> Check:
    try:
        count = len(jar_paths("kafka")) + len(jar_paths("registry"))
    except SetupError:
        return ok("jars for services", "not fetched; headgate up fetches them when it needs them")
    return ok("jars for services", f"{count} in {headgate_home() / 'jars'}")


USUAL_PORTS = {"broker": 9092, "registry": 8081, "database": 3306}


def check_services(folder: Path) -> list[Check]:
    services, database = find(folder), find_database(folder)
    taken = {database.port} if database else set()
    if services is not None:
        taken |= {services.kafka_port, services.registry_port}
    return [
        tried("local services", lambda: _services(folder, services)),
        tried("local database", lambda: _database(folder, database)),
        *(
            tried(f"port {port}", partial(_port, port, name, taken))
            for name, port in USUAL_PORTS.items()
        ),
    ]


def _services(folder: Path, services: Services | None) -> Check:
    name = "local services"
    if services is None:
        recorded = read_services(folder.absolute())
        if recorded is not None and recorded.pids:
            what = ", ".join(f"{each} (pid {pid})" for each, pid in recorded.pids.items())
            return warn(name, f"recorded as running, but not all are: {what}", "headgate up")
        return ok(name, "not running; headgate up starts a broker and a registry")
    mute = [
        each
        for each, answers in (
            ("broker", broker_answers(services.kafka_port)),
            ("registry", registry_answers(services.registry_port)),
        )
        if not answers
    ]
    if mute:
        return fail(
            name,
            f"no response from the {' and the '.join(mute)}",
            "headgate down, then headgate up",
        )
    return ok(name, f"broker at {services.servers}, registry at {services.registry}")


def _database(folder: Path, database: Database | None) -> Check:
    name = "local database"
    if database is None:
        process = recorded_process(NAME, folder.absolute())
        if process is not None:
            detail = f"recorded as running, but process {process.pid} is gone"
            return warn(name, detail, "headgate up --database")
        return ok(name, "not running; headgate up --database starts one")
    if not database_answers(database.folder, database.port):
        fix = "headgate down, then headgate up --database"
        return fail(name, f"no response from process {database.pid} at {database.address}", fix)
    return ok(name, f"at {database.address}, log in with {database.login_file}")


def _port(port: int, name: str, taken: Collection[int]) -> Check:
    if port in taken:
        return ok(f"port {port}", f"used by the local {name}")
    if is_free(port):
        return ok(f"port {port}", f"free for a local {name}")
    # Nothing is broken: `headgate up` takes another port then.
    return ok(f"port {port}", f"used by another program; a local {name} would use another port")


def check_all(pipeline_file: str | None, services_folder: Path) -> list[Check]:
    """Check this machine and, if given, the pipeline."""
    if pipeline_file is None:
        return [*check_machine(Path.cwd()), *check_services(services_folder)]
    file = tried("pipeline file", partial(_file, pipeline_file))
    pipeline = load_pipeline(pipeline_file) if file.state is CheckState.OK else None
    lake = Path(pipeline.lake) if pipeline and not is_remote(pipeline.lake) else Path.cwd()
    checks = [*check_machine(lake), *check_services(services_folder), file]
    if pipeline is None:
        return checks
    of_pipeline = (check_source, check_lake, check_cluster, check_catalog)
    return [*checks, *(one for check in of_pipeline for one in check(pipeline))]


def check_catalog(pipeline: PipelineConfig) -> list[Check]:
    if pipeline.catalog is None:
        return []
    return [tried("catalog", partial(_catalog, pipeline, pipeline.catalog))]


def _catalog(pipeline: PipelineConfig, catalog: Catalog) -> Check:
    if not catalog.is_hive:
        return ok("catalog", f"{catalog.identity} is reached by Spark, in a run")
    require_reachable(catalog)
    missing = Recorded.of(pipeline, catalog).missing
    if missing:
        detail = f"{catalog.in_} answers; {len(missing)} not registered, such as {missing[0]}"
        return warn("catalog", detail, "headgate run registers them; headgate status shows why not")
    return ok("catalog", f"{catalog.in_} answers, and all tables are registered in {catalog.name}")


def _file(path: str) -> Check:
    mistakes = find_mistakes(path)
    if not mistakes:
        return ok("pipeline file", f"{path} is valid")
    first = mistakes[0]
    more = f" and {len(mistakes) - 1} more" if len(mistakes) > 1 else ""
    detail = f"{first.where}: {first.message} [{first.code}]{more}"
    return fail("pipeline file", detail, f"headgate check {path}")


def check_lake(pipeline: PipelineConfig) -> list[Check]:
    lake = tried("lake", lambda: _writable(pipeline))
    tables = tried("tables", lambda: _tables(pipeline))
    pending = tried("pending tables", lambda: _pending(pipeline))
    if pipeline.lands_changes:
        ledger = tried("ledger", lambda: _ledger(pipeline))
        return [lake, ledger, tables, pending, tried("merged tables", lambda: _behind(pipeline))]
    return [lake, tried("checkpoint", lambda: _checkpoint(pipeline)), tables, pending]


def check_cluster(pipeline: PipelineConfig) -> list[Check]:
    """Check what executors on other machines must see; none if the master is this machine."""
    if not is_cluster(master_of(pipeline.spark)):
        return []
    paths = paths_of_tasks(pipeline)
    if not paths:
        return [ok("executors", "need no folder of this machine")]
    listed = ", ".join(f"`{key}` at {path}" for key, path in paths.items())
    return [
        warn(
            "executors",
            f"must see the same as this machine: {listed}",
            "use a mount that all machines share, or an object storage; every run checks it",
        )
    ]


def _writable(pipeline: PipelineConfig) -> Check:
    if is_remote(pipeline.lake):
        probe(pipeline.lake)
        return ok("lake", f"{pipeline.lake} can be written, and commits to it are safe")
    lake = Path(pipeline.lake)
    folder = lake
    while not folder.exists():
        folder = folder.parent
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        return fail("lake", f"{folder} cannot be written: {error.strerror}", "change `lake`")
    return ok("lake", f"{lake} can be {'written' if folder == lake else 'created'}")


def _ledger(pipeline: PipelineConfig) -> Check:
    """Check the ledger alone: change files have no checkpoint to compare it with."""
    run = find_current_run(pipeline)
    if run is not None:
        return ok("ledger", f"in use by process {run.pid} on {run.host}")
    progress = Ledger(pipeline.lake, pipeline.ledger, pipeline.name).progress()
    there = landed_tables(pipeline)
    if progress is None and there:
        return fail(
            "ledger",
            f"the lake has change logs, such as {there[0]}, but no ledger",
            "restore the lake's ledger, or land into an empty lake",
        )
    if progress is None or progress.landed is None:
        return ok("ledger", "nothing has landed yet")
    return ok("ledger", f"batch {progress.landed + 1} is next")


def _behind(pipeline: PipelineConfig) -> Check:
    behind = tables_behind(pipeline, open_ledger(pipeline))
    if not behind:
        return ok("merged tables", "up to date with their change logs")
    return warn(
        "merged tables",
        f"{len(behind)} behind their change logs, such as {behind[0]}",
        "headgate run merges them",
    )


def _checkpoint(pipeline: PipelineConfig) -> Check:
    """Check the checkpoints of all shards; return the worst result."""
    checks = [_checkpoint_of(pipeline.on(stream)) for stream in current_streams(pipeline)]
    return next((one for one in checks if one.state is not CheckState.OK), checks[0])


def _checkpoint_of(pipeline: PipelineConfig) -> Check:
    stream = pipeline.stream.name
    run = find_current_run(pipeline, stream)
    if run is not None:
        return ok("checkpoint", f"in use by process {run.pid} on {run.host}")
    progress = Ledger(pipeline.lake, pipeline.ledger, stream).progress()
    staged = batch_in_progress(pipeline, progress.landed, stream) if progress else None
    checkpoint = Checkpoint(pipeline.checkpoint)
    state = CheckpointState(checkpoint.query_id, checkpoint.last_begun, checkpoint.last_committed)
    try:
        tables = landed_tables(pipeline) if stream == pipeline.name else []
        found = resume(progress, staged, state, tables, from_ledger=False)
    except CheckpointError as error:
        return fail("checkpoint", f"{error.message} ({pipeline.checkpoint})", error.hint)
    if progress is None or progress.landed is None:
        return ok("checkpoint", "nothing has landed yet")
    last = progress.landed - found.first_version
    return ok("checkpoint", f"matches the ledger; batch {last + 1} is next")


def _tables(pipeline: PipelineConfig) -> Check:
    """Check that no table is older than the ledger, and that all have the rows that have landed.

    A table that was put back lacks batches.
    """
    tables = read_landed_rows(pipeline, explain=False)
    behind = [table for table in tables if table.is_behind]
    if behind:
        return fail(
            "tables",
            f"{len(behind)} older than the ledger or gone, such as {behind[0].table}",
            "restore the newest copy of the tables, or the whole lake from the same time",
        )
    unreadable = [table for table in tables if table.trouble is not None]
    if unreadable:
        first = unreadable[0]
        detail = f"{len(unreadable)} cannot be read, such as {first.table}: {first.trouble}"
        return fail("tables", detail, "restore the newest copy of the tables")
    different = [table for table in tables if table.difference]
    if different:
        first = different[0]
        return warn(
            "tables",
            f"{len(different)} with other rows than have landed, such as {first.table}: "
            f"{first.problem}",
            "headgate verify lists the commits that explain it",
        )
    return ok("tables", "none is older than the ledger, and all have the rows that have landed")


def _pending(pipeline: PipelineConfig) -> Check:
    waiting = pending_tables(open_ledger(pipeline).stream)
    if not waiting:
        return ok("pending tables", "none")
    first = waiting[0]
    return warn(
        "pending tables",
        f"{len(waiting)}, such as {first.table}: {first.error}",
        "fix the table, and the next run commits its files; headgate pending lists them",
    )


_TIMEOUT = 5


def check_source(pipeline: PipelineConfig) -> list[Check]:
    needed = [*pipeline.secrets, *(pipeline.workflow.secrets if pipeline.workflow else ())]
    secrets = [tried(f"secret {each}", partial(_secret, each)) for each in dict.fromkeys(needed)]
    if pipeline.lands_changes:
        path = pipeline.change_files.path
        return [*secrets, tried("change files", lambda: _folder(path))]
    source = pipeline.source
    return [
        *secrets,
        tried("broker", lambda: _broker(source))
        if isinstance(source, Kafka)
        else tried("source table", lambda: _table(source.path)),
        tried("registry", lambda: _registry(pipeline)),
        *(
            tried(f"topic {one.to.topic}", partial(_topic, pipeline, name))
            for name, one in pipeline.predict.items()
            if one.to.topic is not None
        ),
    ]


def _broker(source: Kafka) -> Check:
    found = topics_found(source, _TIMEOUT)
    missing = [topic for topic in source.topics if topic not in found]
    if missing:
        return fail(
            "broker",
            f"{source.servers} is up, but has no topic {', '.join(missing)}",
            "check `topics`; headgate simulate creates and fills one",
        )
    if not found:
        return warn(
            "broker",
            f"{source.servers} is up, but no topic matches `{source.pattern}` yet",
            "check `pattern`; new topics are found while the pipeline runs",
        )
    listed = ", ".join(
        f"{topic} ({count} {'partition' if count == 1 else 'partitions'})"
        for topic, count in sorted(found.items())[:5]
    )
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    return ok("broker", f"{source.servers} has {listed}{more}")


def _table(path: str) -> Check:
    table = open_table(path)
    if table is None:
        return fail(
            "source table",
            f"no Delta table at {path}",
            "check `source.delta.path`; headgate simulate games --to delta creates one",
        )
    if "value" not in [field.name for field in table.schema().fields]:
        return fail("source table", f"{path} has no column `value`", "check `source.delta.path`")
    return ok("source table", f"{path} at version {table.version()}")


def _folder(path: str) -> Check:
    files, inside = FileSystem.from_uri(path)
    if files.get_file_info(inside).type != FileType.Directory:
        return fail("change files", f"no folder {path}", "check `source.files.path`, or create it")
    return ok("change files", f"{path} can be read")


def _registry(pipeline: PipelineConfig) -> Check:
    declared = pipeline.schema_registry
    if declared.url is not None:
        try:
            with opened_registry(declared, Duration(seconds=_TIMEOUT)) as registry:
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
            f"no schemas in {folder}",
            "add <id>.proto or <id>.avsc files; headgate simulate games --to delta adds some",
        )
    return ok("registry", f"{len(schemas)} schemas in {folder}")


def _topic(pipeline: PipelineConfig, prediction: str) -> Check:
    """Whether the topic that predictions go to has a schema for them."""
    name = f"topic {pipeline.predict[prediction].to.topic}"
    try:
        encoder = topic_encoder(pipeline, prediction)
    except LandingError as error:
        return fail(name, error.message, error.hint)
    return ok(name, f"`{encoder.value}` gets the value of {prediction}, schema {encoder.schema_id}")


def _secret(secret: Secret) -> Check:
    secret.resolve()
    return ok(f"secret {secret}", "found")
