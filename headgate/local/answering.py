"""Waits for a service that was started, and says why when it does not come up."""

from __future__ import annotations

import time
from collections.abc import Callable

from headgate.errors import SetupError
from headgate.local.detached_process import DetachedProcess

_PAUSE = 0.05


def wait_until_answering(
    process: DetachedProcess, answers: Callable[[], bool], patience: float = 120.0
) -> None:
    """Return when `answers` says so; SetupError `service-failed` if it dies or takes too long."""
    give_up = time.monotonic() + patience
    while not answers():
        if not process.is_alive():
            raise _failed(process, "ended instead of starting")
        if time.monotonic() > give_up:
            raise _failed(process, f"did not answer within {patience:.0f} s")
        time.sleep(_PAUSE)


def _failed(process: DetachedProcess, what: str) -> SetupError:
    tail = process.log_tail()
    said = f"; its last lines:\n{tail}" if tail else ""
    return SetupError(
        "service-failed",
        f"the {process.name} {what}{said}",
        hint=f"the whole log is {process.log_file}",
    )
