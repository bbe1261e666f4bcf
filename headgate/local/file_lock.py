"""One process at a time: a lock on a file, gone when its holder is gone."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def hold_lock(file: Path, *, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock for the block; `on_wait` is called once if another process has it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if on_wait is not None:
                on_wait()
            fcntl.flock(handle, fcntl.LOCK_EX)
        # The file stays: deleting it would let a third process lock a new file of that name
        # while a second one still waits for the old one.
        yield
