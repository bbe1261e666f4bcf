"""What commands that are for change files alone begin with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from headgate.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.pipeline import ChangePipeline


def load_change_pipeline(file: str) -> ChangePipeline:
    """The pipeline that a file declares, which has to be one of change files."""
    from headgate.pipeline import ChangePipeline, load_pipeline

    pipeline = load_pipeline(file)
    if isinstance(pipeline, ChangePipeline):
        return pipeline
    raise UsageError(
        "bad-argument",
        f"{file} declares a stream of records, and this is for change files only",
        hint="streams have no change logs: the tables that their records land in are all there is",
    )


@contextmanager
def spark_when_needed(pipeline: ChangePipeline) -> Iterator[Callable[[], SparkSession]]:
    """A way to start Spark, quietly; most tables are small enough to do without."""
    from headgate.cli.quiet_spark import quiet_spark

    with ExitStack() as stack:

        def start() -> SparkSession:
            from headgate.run.pipeline_session import pipeline_session

            stack.enter_context(quiet_spark())
            return pipeline_session(pipeline)

        yield start
