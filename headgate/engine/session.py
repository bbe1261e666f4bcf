"""The Spark session that a pipeline runs in."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headgate.config import PipelineConfig
from headgate.jars.jars import jar_paths
from headgate.jars.java import find_java
from headgate.sources.kafka import text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REDACTED = "(?i)secret|password|token|access[.]?key|jaas|credential|keystore|basic.auth|user.info"

_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "1g",
    # Batches need throughput; pauses of the collector do not matter.
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.redaction.regex": _REDACTED,
    # Spark computes the size of an Arrow batch again for every record. With a column of lists (the
    # headers), that takes ten times as long as all the rest. A limit on the rows costs nothing.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
    "spark.sql.shuffle.partitions": "2",
    # Number of tasks to read a Delta log; the default of 50 is for large clusters.
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.databricks.delta.commit.idempotencyCheck.enabled": "true",
    "spark.sql.streaming.stopTimeout": "60s",
}


def spark_session(name: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Return the active session of this process, or start one."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    find_java()
    # Executors must run this Python, not the first one on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Hides Spark's start-up messages and its warnings about native libraries.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", f"-Dlog4j2.configurationFile={LOGGING}")
    builder = SparkSession.builder.appName(f"headgate {name}")
    if "MASTER" not in os.environ and "SPARK_REMOTE" not in os.environ:
        builder = builder.master("local[*]")
    jars = ",".join(str(path) for path in jar_paths("spark"))
    for key, value in {**_SETTINGS, "spark.jars": jars, **(settings or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


LOGGING = os.path.join(os.path.dirname(__file__), "log4j2.properties")


def pipeline_session(pipeline: PipelineConfig) -> SparkSession:
    return spark_session(pipeline.name, {key: text(one) for key, one in pipeline.spark.items()})
