"""A Spark session that has the tables of a pipeline by name, and its settings for another Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.catalog.hive import require_reachable
from headgate.config import PipelineConfig, Secret
from headgate.engine.session import (
    DELTA,
    jar_groups,
    jar_list,
    pipeline_session,
    pipeline_settings,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def catalog_session(pipeline: PipelineConfig) -> SparkSession:
    """Return a session with the catalog of a pipeline; raise if it does not answer."""
    if pipeline.catalog is None:
        return pipeline_session(pipeline)
    if pipeline.catalog.is_hive:
        require_reachable(pipeline.catalog)
    return pipeline_session(pipeline, pipeline.catalog.for_spark())


def spark_defaults(pipeline: PipelineConfig) -> list[str]:
    """Return the lines for `spark-defaults.conf`; those of secrets are comments."""
    settings: dict[str, str | Secret] = {
        **DELTA,
        "spark.jars": jar_list(jar_groups(pipeline)),
        **pipeline_settings(pipeline),
        **(pipeline.catalog.for_spark() if pipeline.catalog else {}),
    }
    width = max(map(len, settings))
    return [
        f"# {key.ljust(width)} the value of {value}"
        if isinstance(value, Secret)
        else f"{key.ljust(width)} {value}"
        for key, value in settings.items()
    ]
