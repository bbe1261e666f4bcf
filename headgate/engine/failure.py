"""Turns exceptions of a run, Spark's among them, into errors with a code and a hint."""

from __future__ import annotations

import re

from headgate.errors import HeadgateError, LandingError, SourceError

_PYTHON_ERROR = re.compile(r"^(?:\w+\.)*(\w*(?:Error|Exception|Interrupt)): (.+)$", re.MULTILINE)


def explain_failure(error: BaseException) -> HeadgateError:
    """Return the error to show; errors of Headgate are returned as they are."""
    if isinstance(error, HeadgateError):
        return error
    text = str(error)
    if "UnknownTopicOrPartition" in text or "DELTA_MISSING_DELTA_TABLE" in text:
        return SourceError("source-missing", "the source no longer exists", hint="check `source`")
    if "failOnDataLoss" in text or "KAFKA_DATA_LOSS" in text or "DELTA_VERSIONS_NOT" in text:
        return SourceError(
            "data-lost",
            "the source dropped records before they were read",
            hint="raise the source's retention; restore the records, or continue without them with "
            "a new checkpoint and lake",
        )
    if "No space left on device" in text:
        return LandingError(
            "batch-failed",
            "the disk is full",
            hint="free disk space and run again to retry the batch",
        )
    found = _PYTHON_ERROR.findall(text)
    what = f"{found[-1][0]}: {found[-1][1]}" if found else (text.strip() or repr(error))
    return LandingError(
        "batch-failed",
        what.splitlines()[0][:500],
        hint="run again to retry the batch; --debug shows Spark's full error",
    )
