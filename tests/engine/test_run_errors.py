"""Errors of Spark, as a run reports them."""

from __future__ import annotations

import pytest

from headgate.engine.runner import _explained

FAILED_TASK = (
    "An error occurred while calling o499.collectToPython.\n"
    ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 8.0 "
    "failed 1 times, most recent failure: Lost task 0.0 (TID 8) (executor driver): {}\n\n"
    "Driver stacktrace:\n\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAG.scala:3318)\n"
)


@pytest.mark.parametrize(
    ("cause", "code", "message"),
    [
        (
            "org.apache.kafka.common.errors.TimeoutException: Timeout of 6000ms expired",
            "source-missing",
            "the broker did not answer in time (Timeout of 6000ms expired)",
        ),
        (
            "java.util.concurrent.TimeoutException: Cannot fetch record for kafka-0",
            "source-missing",
            "the broker did not answer in time (Cannot fetch record for kafka-0)",
        ),
        (
            "java.lang.IllegalStateException: the cache is closed",
            "batch-failed",
            "IllegalStateException: the cache is closed",
        ),
        (
            "java.io.IOException: No space left on device",
            "batch-failed",
            "the disk is full",
        ),
    ],
)
def test_error_of_a_task_is_named(cause: str, code: str, message: str) -> None:
    error = _explained(Exception(FAILED_TASK.format(cause)), "/lake")
    assert (error.code, error.message) == (code, message)
    assert error.hint


@pytest.mark.parametrize(
    "cause",
    [
        "Generic S3 error: Error performing PUT http://127.0.0.1:9/x in 1ms: error sending request",
        "org.apache.hadoop.fs.s3a.AWSClientIOException: connection refused on s3a://lake/x",
    ],
)
def test_error_of_an_object_store_says_what_to_check(cause: str) -> None:
    error = _explained(Exception(cause), "s3://lake/games")
    assert error.code == "storage-unreachable"
    assert "http" not in error.message
    assert error.hint
    assert _explained(Exception(cause), "/lake").code == "batch-failed"
