"""The Spark session of a pipeline, with the settings that its file has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.pipeline import AnyPipeline
from headgate.run.session import spark_session
from headgate.source.kafka import text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pipeline_session(pipeline: AnyPipeline) -> SparkSession:
    return spark_session(pipeline.name, {key: text(one) for key, one in pipeline.spark.items()})
