"""The Spark session that a pipeline runs in."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from headgate.cluster.driver import is_databricks, is_submitted
from headgate.cluster.pack import Report
from headgate.cluster.settings import PYTHON, is_cluster, master_of, same_python, shipped
from headgate.config import PipelineConfig, Secret
from headgate.config.secret_patterns import redaction
from headgate.config.secrets import task_secrets
from headgate.config.storage import S3, scheme_of, task_environment
from headgate.errors import SetupError
from headgate.jars.class_archive import archive_options
from headgate.jars.jars import jar_paths
from headgate.jars.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HERE = os.path.dirname(__file__)
_REDACTED = "spark.redaction.regex"

DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
"""Settings with which Spark reads and writes Delta tables."""

DRIVER = {
    "spark.driver.memory": "1g",
    # Batches need throughput; pauses of the collector do not matter.
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
}
"""Settings that a driver needs when it starts."""

_SETTINGS = {
    **DELTA,
    **DRIVER,
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Spark computes the size of an Arrow batch again for every record. With a column of lists (the
    # headers), that takes ten times as long as all the rest. A limit on the rows costs nothing.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
    "spark.sql.shuffle.partitions": "2",
    # A union of rows that are in one task each would put them all into one.
    "spark.sql.unionOutputPartitioning": "false",
    # Number of tasks to read a Delta log; the default of 50 is for large clusters.
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.databricks.delta.commit.idempotencyCheck.enabled": "true",
    "spark.sql.streaming.stopTimeout": "60s",
}
_POOLS = os.path.join(_HERE, "pools.xml")
_starting = threading.Lock()
_FOLLOW_UPS = "follow-ups"
"""Pool of jobs that leave most cores to batches."""

_ON_THIS_MACHINE = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
"""Nobody else needs to reach the driver, and no name of this machine has to be resolved."""

_LOCAL_MASTER = "local[*,4]"
"""All cores, and four attempts for a task, as on a cluster: one that is cancelled may take the
Python worker of another with it."""


def spark_session(
    name: str,
    settings: Mapping[str, str | Secret] | None = None,
    jars: Sequence[str] = (),
    hidden: Sequence[str] = (),
) -> SparkSession:
    """Return the active session of this process, or start one, maybe with further groups of jars.

    Its plans do not show the `hidden` options of sources. A session that is active already keeps
    its own settings, except on Databricks, where one always is.
    """
    with _starting:
        return _session(name, settings, jars, hidden)


def _session(
    name: str,
    settings: Mapping[str, str | Secret] | None,
    jars: Sequence[str],
    hidden: Sequence[str],
) -> SparkSession:
    from pyspark.sql import SparkSession

    if is_databricks():
        return _builder(settings_of(name, settings or {})).getOrCreate()
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    given = settings_of(name, settings or {}, jars)
    if not is_submitted():
        find_java()
        given |= shipped(given)
        _choose_python(given)
        os.environ["SPARK_SUBMIT_OPTS"] = java_options(os.environ.get("SPARK_SUBMIT_OPTS", ""))
    secrets = {key: one for key, one in (settings or {}).items() if isinstance(one, Secret)}
    given[_REDACTED] = redaction([*secrets, *hidden], given.get(_REDACTED))
    resolved = {key: secret.resolve() for key, secret in secrets.items()}
    try:
        _start(given, resolved)
        return _builder(given).getOrCreate()
    except Exception as error:
        if is_cluster(master_of(given)) and _NOT_ACCEPTED.search(str(error)):
            raise cluster_unavailable(master_of(given)) from error
        raise


def _builder(settings: Mapping[str, str]) -> SparkSession.Builder:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder


_NOT_ACCEPTED = re.compile(
    r"stopped SparkContext|Master(?:s are|\b.* is) unresponsive|[Ff]ailed to connect to master"
    r"|External scheduler cannot be instantiated|JAVA_GATEWAY_EXITED"
)


def cluster_unavailable(master: str) -> SetupError:
    return SetupError(
        "cluster-unavailable",
        f"the cluster at {master} did not accept the application",
        hint="check `spark.master` (for YARN also HADOOP_CONF_DIR), that the cluster has the same "
        "version of Spark, and that executors can reach the driver (`spark.driver.host`)",
    )


def _choose_python(settings: Mapping[str, str]) -> None:
    """Let executors run this Python, not the first one on the PATH; on other machines, theirs."""
    default = same_python() if is_cluster(master_of(settings)) else sys.executable
    if PYTHON in settings:
        os.environ["PYSPARK_PYTHON"] = settings[PYTHON]
    os.environ.setdefault("PYSPARK_PYTHON", default)


def settings_of(
    name: str, settings: Mapping[str, str | Secret], jars: Sequence[str] = ()
) -> dict[str, str]:
    """Return the settings of a session, without those that are secrets."""
    given = dict(_SETTINGS)
    if "MASTER" not in os.environ and "SPARK_REMOTE" not in os.environ:
        given["spark.master"] = _LOCAL_MASTER
    if os.path.exists(_POOLS):
        # With a scheme, because the default file system may be another one.
        given |= {
            "spark.scheduler.mode": "FAIR",
            "spark.scheduler.allocation.file": f"file://{_POOLS}",
        }
    given["spark.app.name"] = app_name(name)
    if not is_submitted():
        given["spark.jars"] = jar_list(jars)
    given |= {key: one for key, one in settings.items() if isinstance(one, str)}
    if is_databricks():
        return {key: one for key, one in given.items() if _OF_A_SESSION.fullmatch(key)}
    if is_submitted():
        return {key: one for key, one in given.items() if not _OF_SPARK_SUBMIT.fullmatch(key)}
    if master_of(given).startswith("local"):
        given = {**_ON_THIS_MACHINE, **given}
    return given


def app_name(pipeline: str) -> str:
    return f"headgate {pipeline}"


def jar_list(groups: Sequence[str] = ()) -> str:
    """Return the jars of Spark and of further groups, as Spark's settings have them."""
    return ",".join(str(path) for conf in ("spark", *groups) for path in jar_paths(conf))


_OF_SPARK_SUBMIT = re.compile(
    r"spark\.(?:master|home|jars(?:\..*)?|files|archives|submit\..*|driver\..*|pyspark\..*"
    r"|kubernetes\..*|yarn\..*|executorEnv\.PYTHONPATH|headgate\..*)"
)
"""Settings that `spark-submit` has made by the time that it starts the driver."""


_OF_A_SESSION = re.compile(
    r"spark\.(?:sql|databricks\.delta)\."
    r"(?!(?:extensions|catalog\..*|catalogImplementation|warehouse\.dir|hive\..*)$).*"
)
"""Settings that a session may change while Spark runs. Databricks has the others, and those of the
storage, from the cluster that its job declares."""


def _start(settings: Mapping[str, str], secrets: Mapping[str, str]) -> None:
    """Start Spark with secrets that are in no command line and no file.

    PySpark starts Java with all settings that it has by then as arguments. Those that are added
    later reach Java over its connection with Python, and executors over theirs with the driver.
    """
    from pyspark import SparkConf, SparkContext

    if not secrets:
        return
    SparkContext._ensure_initialized(conf=SparkConf().setAll(list(settings.items())))
    whole = SparkConf().setAll([*settings.items(), *secrets.items()])
    SparkContext.getOrCreate(whole)


LOGGING = os.path.join(_HERE, "log4j2.properties")


def java_options(given: str) -> str:
    """Add to the options of Spark's Java what they do not set."""
    options = [given]
    if "log4j2.configurationFile" not in given:
        # Hides Spark's start-up messages and its warnings about native libraries.
        options.append(f"-Dlog4j2.configurationFile={LOGGING}")
    if "Archive" not in given:
        options.append(archive_options() or "")
    return " ".join(filter(None, options))


def pipeline_session(
    pipeline: PipelineConfig, further: Mapping[str, str] | None = None
) -> SparkSession:
    """Return the session of a pipeline, in which tasks reach its storage."""
    settings = {**pipeline_settings(pipeline), **(further or {})}
    options = getattr(pipeline.source, "options", {})
    hidden = [key for key, value in options.items() if isinstance(value, Secret)]
    spark = spark_session(pipeline.name, settings, jar_groups(pipeline), hidden)
    spark.sparkContext.environment |= task_environment()
    if is_cluster(spark.sparkContext.master):
        spark.sparkContext.environment |= task_secrets(_secrets_of_tasks(pipeline))
    return spark


def pipeline_settings(pipeline: PipelineConfig) -> dict[str, str | Secret]:
    """Return the settings that a pipeline adds to those of every session."""
    settings: dict[str, str | Secret] = {}
    for url in pipeline.urls:
        settings |= pipeline.storage.for_spark(url)
    return {**settings, **pipeline.spark}


def jar_groups(pipeline: PipelineConfig) -> Sequence[str]:
    """Return the groups of jars that a pipeline needs beside those of Spark."""
    return ("s3",) if any(scheme_of(url) in S3 for url in pipeline.urls) else ()


def _secrets_of_tasks(pipeline: PipelineConfig) -> list[Secret]:
    """Return the secrets that tasks need themselves: those of the registry."""
    return [] if pipeline.registry is None else pipeline.registry.secrets


def prepare_pack(pipeline: PipelineConfig, report: Report) -> None:
    """Build what executors on other machines need, which may take a while."""
    if not is_submitted():
        shipped(pipeline.spark, report)


def start_session(pipeline: PipelineConfig) -> None:
    """Start the session in the background. If that fails, `pipeline_session` will say why."""

    def start() -> None:
        with suppress(Exception):
            pipeline_session(pipeline)

    threading.Thread(target=start, name="start of spark", daemon=True).start()


def yield_to_batches(spark: SparkSession) -> None:
    """Let jobs of this thread leave most cores to those that land batches."""
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", _FOLLOW_UPS)
