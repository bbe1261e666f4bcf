"""A lock that keeps a pipeline from running twice at the same time."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headgate.errors import CheckpointError


@contextmanager
def run_lock(checkpoint: str, pipeline: str) -> Iterator[None]:
    """Hold the lock of a pipeline. The system releases it with the process, however that ends."""
    path = Path(f"{checkpoint.rstrip('/')}.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CheckpointError(
                "checkpoint-in-use",
                f"pipeline {pipeline} is already running{_holder(path)}",
                hint="stop the other run first, or give this one its own name and lake",
                where=str(path),
            ) from None
        lock.truncate(0)
        lock.write(json.dumps({"pid": os.getpid()}))
        lock.flush()
        yield


def _holder(path: Path) -> str:
    try:
        return f" (process {json.loads(path.read_text())['pid']})"
    except (OSError, ValueError, KeyError):
        return ""
