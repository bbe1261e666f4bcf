"""Files by URL: on this machine, or in an object store.

delta-rs reads and writes the log and the data of tables itself; all other files of a lake are
read and written here. A path is that of a local file, a URL that of an object.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cache
from uuid import uuid4

import pyarrow as pa

from headgate.config.location import is_remote
from headgate.errors import StorageError
from headgate.lake.disk import Disk
from headgate.lake.files import Files, FoundFile, Identity
from headgate.lake.storage_errors import root_of

MAX_REQUESTS = 16
"""Requests to an object store at the same time."""
_ON_DISK = 2

_DISK = Disk()


@cache
def _objects() -> Files:
    # Only lakes in an object store need its client.
    from headgate.lake.objects import Objects

    return Objects()


def _of(url: str) -> Files:
    return _objects() if is_remote(url) else _DISK


def read_file(url: str) -> bytes:
    """Return the content of a file; raise FileNotFoundError if it does not exist."""
    return _of(url).read(url)


def write_file(url: str, content: bytes) -> None:
    """Write a file, or replace it, atomically."""
    _of(url).write(url, content)


def create_file(url: str, content: bytes) -> Identity | None:
    """Write a file atomically unless there is one; return its identity, or None if there is."""
    return _of(url).create(url, content)


def delete_file(url: str) -> None:
    """Delete a file, if it exists."""
    _of(url).delete(url)


def delete_files(folder: str, paths: Sequence[str]) -> None:
    """Delete files below a folder, in their order, if they exist.

    One that cannot be deleted does not keep the rest; the first error is raised afterwards.
    """
    _of(folder).delete_all(folder, paths)


def delete_folder(url: str) -> None:
    """Delete a folder with everything in it, if it exists."""
    _of(url).delete_folder(url)


def delete_empty_folder(url: str) -> None:
    """Delete a folder if there is no file in it; in an object store, there is no such folder."""
    if not is_remote(url):
        _DISK.delete_empty_folder(url)


def has_file(url: str) -> bool:
    return identify(url) is not None


def is_folder(url: str) -> bool:
    """Whether there are files in a folder."""
    return _of(url).is_folder(url)


def identify(url: str) -> Identity | None:
    """Return the identity of a file; None if it does not exist."""
    return _of(url).identify(url)


def identify_from(first: str, last: str) -> dict[str, Identity]:
    """Return the identities of two files of a folder, by one request, if they exist."""
    return _of(first).identify_from(first, last)


def link_file(url: str, to: str) -> None:
    """Have a file at a second place: as a link if the storage has links, else as a copy."""
    _of(url).link(url, to)


def copy_file(url: str, to: str) -> None:
    """Copy a file; raise FileNotFoundError if it does not exist."""
    _of(url).copy(url, to)


def move_folder(url: str, to: str) -> None:
    """Rename a folder. In an object store, its files are copied, then deleted."""
    _of(url).move_folder(url, to)


def find_files(folder: str, below: bool = True) -> list[FoundFile]:
    """Return all files of a folder, by default also those in folders below it."""
    return _of(folder).find(folder, below)


def list_files(folder: str, prefix: str = "") -> list[str]:
    """Return the paths, below a folder, of all files whose names begin with a prefix."""
    paths = [file.path for file in find_files(folder)]
    return [path for path in paths if path.rpartition("/")[2].startswith(prefix)]


def list_folders(folder: str) -> list[str]:
    """Return the names of the folders in a folder; none if it does not exist."""
    return _of(folder).folders(folder)


def open_input(url: str) -> str | pa.NativeFile:
    """Return what pyarrow reads a file from."""
    return _of(url).open_input(url)


def open_output(url: str) -> AbstractContextManager[pa.NativeFile]:
    """Return a file to write; an object exists only once it is complete."""
    return _of(url).open_output(url)


def probe(url: str) -> None:
    """Require that a folder can be written, and that the storage keeps commits apart.

    A commit is safe if only one of several writers can create a file.
    """
    file = f"{url}/_staged/probe-{uuid4().hex}"
    try:
        first, second = create_file(file, b"1"), create_file(file, b"2")
    finally:
        delete_file(file)
    if first is None or second is not None:
        raise StorageError(
            "storage-unsafe",
            f"the object storage of {root_of(url)} has no conditional put",
            hint="commits of two runs could replace each other: use a storage that supports "
            "`If-None-Match: *`, as S3, Azure and Google Cloud Storage do",
            where=url,
        )


def require_reachable(url: str) -> None:
    """Raise what keeps a URL from being read: delta-rs says less about it."""
    if is_remote(url):
        is_folder(url)


def tables_at_once(lake: str) -> int:
    """Return how many tables to read or commit to at a time.

    Where nothing waits for requests, more of them would wait for each other.
    """
    return MAX_REQUESTS if is_remote(lake) else _ON_DISK
