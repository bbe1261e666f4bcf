"""The lock of a pipeline: a file in its lake that says which process runs it.

The holder renews the file while it runs, so the lock works on any storage and needs no clean-up
after a crash. It keeps people from starting a second run by mistake. What keeps two runs from
harming each other is the ledger: only the run that took over last can complete a batch.
"""

from __future__ import annotations

import getpass
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace

from headgate.errors import CheckpointError, StorageError
from headgate.lake.staged import NoteFile

_RENEWED_EVERY = 5.0
_EXPIRES_AFTER = 30.0
"""Seconds after which a lock that is not renewed is free, if its process cannot be looked up."""


@dataclass(frozen=True)
class Holder:
    """The process that holds a lock."""

    host: str
    pid: int
    user: str
    renewed: float
    """Seconds since the epoch."""
    failed: bool = False
    """Whether the process has ended with an error."""

    @classmethod
    def this_process(cls) -> Holder:
        return cls(socket.gethostname(), os.getpid(), _user(), time.time())

    def __str__(self) -> str:
        return f"process {self.pid} of {self.user} on {self.host}"

    def is_of(self, other: Holder) -> bool:
        """Whether both are the same process."""
        return (self.host, self.pid) == (other.host, other.pid)

    @property
    def is_alive(self) -> bool:
        """Whether the process still runs, as far as this one can tell at once."""
        if self.failed or time.time() - self.renewed > _EXPIRES_AFTER:
            return False
        return self.host != socket.gethostname() or _exists(self.pid)

    @property
    def is_ahead(self) -> bool:
        """Whether its clock is ahead of ours, so that its time does not say whether it runs."""
        return self.renewed - time.time() > _EXPIRES_AFTER


@dataclass(frozen=True)
class Held:
    """A lock that this process holds."""

    holder: Holder
    after_failure: bool
    """Whether the holder before did not end as it should have."""


@contextmanager
def run_lock(lake: str, name: str, pipeline: str) -> Iterator[Held]:
    """Hold a lock of a pipeline, or raise if another process does."""
    note = _note(lake, name)
    before, holder = read_holder(lake, name), Holder.this_process()
    # The note of a run that has ended here is still there if the disk was full.
    is_left = before is not None and before.is_of(holder) and (lake, name) not in _held
    if before is not None and not is_left and _is_running(note, before):
        raise CheckpointError(
            "pipeline-in-use",
            f"pipeline {pipeline} is already running: {before}",
            hint="stop the other run first, or give this one its own name and lake; the lock of a "
            f"process that is gone expires after {_EXPIRES_AFTER:.0f} seconds",
            where=lake,
        )
    note.write(_encode(holder))
    ended = threading.Event()
    renewing = threading.Thread(target=_renew, args=(note, holder, ended), daemon=True)
    renewing.start()
    _held.add((lake, name))
    try:
        yield Held(holder, after_failure=before is not None)
    except BaseException:
        ended.set()
        renewing.join()
        with suppress(OSError, StorageError):
            _write_own(note, replace(holder, renewed=time.time(), failed=True))
        raise
    finally:
        _held.discard((lake, name))
    ended.set()
    renewing.join()
    if _is_own(note, holder):
        note.clear()


_held: set[tuple[str, str]] = set()
"""Locks that this process holds: lakes and names."""


def read_holder(lake: str, name: str) -> Holder | None:
    """Return the last process that took a lock, unless it gave it back."""
    return _holder(_note(lake, name))


def running_holder(lake: str, name: str) -> Holder | None:
    """Return the process that holds a lock. Waits if only time can tell whether it still runs."""
    note = _note(lake, name)
    holder = _holder(note)
    return holder if holder is not None and _is_running(note, holder) else None


def _is_running(note: NoteFile, holder: Holder) -> bool:
    """Whether a process renews its lock, by the clock of this one."""
    if not holder.is_alive or not holder.is_ahead or holder.host == socket.gethostname():
        return holder.is_alive
    began = time.monotonic()
    while time.monotonic() - began < _EXPIRES_AFTER:
        time.sleep(min(_RENEWED_EVERY, _EXPIRES_AFTER) / 5)
        now = _holder(note)
        if now is None or now.failed:
            return False
        if now != holder:
            return True
    return False


def _note(lake: str, name: str) -> NoteFile:
    return NoteFile(lake, f"{name}.lock")


def _encode(holder: Holder) -> bytes:
    return json.dumps(asdict(holder)).encode()


def _renew(note: NoteFile, holder: Holder, ended: threading.Event) -> None:
    while not ended.wait(_RENEWED_EVERY):
        # A full disk or a storage that does not respond must not end the run.
        with suppress(OSError, StorageError):
            _write_own(note, replace(holder, renewed=time.time()))


def _write_own(note: NoteFile, holder: Holder) -> None:
    """Write the lock unless another process has taken it."""
    if _is_own(note, holder):
        note.write(_encode(holder))


def _is_own(note: NoteFile, holder: Holder) -> bool:
    found = _holder(note)
    return found is None or found.is_of(holder)


def _holder(note: NoteFile) -> Holder | None:
    content = note.read()
    try:
        return None if content is None else Holder(**json.loads(content))
    except (ValueError, TypeError):
        return None


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        return str(os.getuid())
