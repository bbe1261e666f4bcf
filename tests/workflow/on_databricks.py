"""Run commands in the interpreter of a session that exists, as tasks on Databricks are run.

A process of its own, because the session is that of a process.
"""

from __future__ import annotations

import json
import os
import sys

from pyspark.sql import SparkSession

from headgate.cli.main import main
from headgate.engine.session import DELTA, jar_list
from headgate.jars.java import find_java


def start_runtime() -> SparkSession:
    """Start a session with Delta, in another time zone and without any setting of Headgate's."""
    find_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable  # of the cluster, with its libraries
    settings = {**DELTA, "spark.jars": jar_list(), "spark.sql.session.timeZone": "Asia/Tokyo"}
    builder = SparkSession.builder.master("local[2]").appName("Databricks Shell")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def run_task(*parameters: str) -> str | None:
    """Run a task, and return why it failed."""
    sys.argv = ["headgate", *parameters]
    try:
        main()
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return None


if __name__ == "__main__":
    runtime = start_runtime()
    before = runtime.sparkContext.applicationId
    os.environ["DATABRICKS_RUNTIME_VERSION"] = "18.0"
    os.environ["JAVA_HOME"] = os.environ["PATH"] = "/nowhere"
    landed = run_task("run", "games.yaml", "--once", "--progress", "none")
    failed = run_task("run", "missing.yaml")
    after = SparkSession.builder.getOrCreate()
    found = {
        "landed": landed,
        "failed": failed,
        "same": after.sparkContext.applicationId == before,
        "name": after.sparkContext.appName,
        "zone": after.conf.get("spark.sql.session.timeZone"),
        "batch": after.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch"),
    }
    print(json.dumps(found))
