"""How this process, the driver, was started."""

from __future__ import annotations

import os


def is_databricks() -> bool:
    """Whether this process runs on a cluster of Databricks, whose session it uses."""
    return "DATABRICKS_RUNTIME_VERSION" in os.environ


def is_submitted() -> bool:
    """Whether this process was started with what executors need: by `spark-submit`, or on a
    cluster of Databricks, whose libraries they have."""
    return "PYSPARK_GATEWAY_PORT" in os.environ or is_databricks()
