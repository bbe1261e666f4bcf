"""Turns what Spark throws into an error that says what happened and what to do."""

from __future__ import annotations

import re

from headgate.errors import HeadgateError, LandingError, SourceError

_PYTHON_ERROR = re.compile(r"^(?:\w+\.)*(\w*(?:Error|Exception|Interrupt)): (.+)$", re.MULTILINE)


def explain_failure(error: BaseException) -> HeadgateError:
    """The error to show; one of ours stays as it is."""
    if isinstance(error, HeadgateError):
        return error
    text = str(error)
    if "UnknownTopicOrPartition" in text or "DELTA_MISSING_DELTA_TABLE" in text:
        return SourceError(
            "source-missing", "the source is not there any more", hint="check `source`"
        )
    if "failOnDataLoss" in text or "KAFKA_DATA_LOSS" in text or "DELTA_VERSIONS_NOT" in text:
        return SourceError(
            "data-lost",
            "the source has dropped records that were not yet read",
            hint="raise the source's retention; to go on without them, begin with a new "
            "checkpoint and lake, or restore the records",
        )
    if "No space left on device" in text:
        return LandingError(
            "batch-failed",
            "the disk is full",
            hint="make room and run again: the batch goes on where it was",
        )
    found = _PYTHON_ERROR.findall(text)
    what = f"{found[-1][0]}: {found[-1][1]}" if found else (text.strip() or repr(error))
    return LandingError(
        "batch-failed",
        what.splitlines()[0][:500],
        hint="run again to go on where it was; --debug shows all that Spark says",
    )
