"""Keeps what the JVM says at every start away from the terminal; the rest comes through."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_CHATTER = (
    b"WARNING: Using incubator modules",
    b"Setting default log level to",
    b"To adjust logging level use",
    b"Using Spark's default log4j profile",
    b"WARNING: A terminally deprecated method",
    b"WARNING: A restricted method",
    b"WARNING: Use --enable-native-access",
    b"WARNING: Restricted methods will be blocked",
    b"WARNING: sun.misc.Unsafe",
    b"WARNING: Please consider reporting this to the maintainers",
)


@contextmanager
def quiet_spark() -> Iterator[None]:
    """A JVM that is started inside writes to a pipe that is read here."""
    sys.stderr.flush()
    reading, writing = os.pipe()
    terminal = os.dup(2)
    os.dup2(writing, 2)
    os.close(writing)
    before = sys.stderr
    sys.stderr = os.fdopen(terminal, "w", buffering=1, errors="replace")
    # A daemon: the JVM keeps its end open until this process has ended.
    threading.Thread(target=_pass_on, args=(reading,), name="spark's stderr", daemon=True).start()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(terminal, 2)
        sys.stderr = before


def _pass_on(reading: int) -> None:
    with os.fdopen(reading, "rb") as lines:
        for line in lines:
            if not line.startswith(_CHATTER):
                # Looked up each time: a live view puts itself in its place.
                sys.stderr.write(line.decode("utf-8", "replace"))
