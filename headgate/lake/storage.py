"""Files by URL: on this machine, or in an object store.

delta-rs reads and writes the log and the data of tables itself; all other files of a lake are
read and written here. A path is that of a local file, a URL that of an object.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import urlsplit
from uuid import uuid4

import pyarrow as pa

from headgate.config.location import is_below, is_remote
from headgate.config.storage import declared_storage
from headgate.errors import StorageError

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore, S3Config

TASK_STORAGE = "HEADGATE_STORAGE"
"""Environment variable of tasks: options by URL, which they cannot get from a pipeline file."""

MAX_REQUESTS = 16
"""Requests to an object store at the same time."""

_WHOLE = 64 << 20
"""Bytes up to which an object is read in one request."""

_DELETED_AT_ONCE = 1_000
"""Objects that S3 deletes in one request."""

_Known = TypeVar("_Known")

Identity = object
"""What distinguishes a file from one that replaced it: inode and time, or the object's tag."""


def options_of(url: str) -> dict[str, str] | None:
    """Return the options with which delta-rs reaches a URL; None for those of the environment."""
    if not is_remote(url):
        return None
    storage = _nearest(declared_storage(), url)
    if storage is not None:
        return storage.for_tables(url)
    return _nearest(json.loads(os.environ.get(TASK_STORAGE, "{}")), url)


def task_environment() -> dict[str, str]:
    """Return the environment variables with which tasks reach what this process reaches."""
    options = {url: storage.for_tables(url) for url, storage in declared_storage().items()}
    return {TASK_STORAGE: json.dumps(options)} if options else {}


def _nearest(known: Mapping[str, _Known], url: str) -> _Known | None:
    """Return the value of the longest URL that a URL is below of."""
    found = [one for one in known if is_below(url, one)]
    return known[max(found, key=len)] if found else None


def read_file(url: str) -> bytes:
    """Return the content of a file; raise FileNotFoundError if it does not exist."""
    if not is_remote(url):
        return Path(url).read_bytes()
    import obstore

    with _explained(url):
        return obstore.get(*_object(url)).bytes().to_bytes()


def write_file(url: str, content: bytes) -> None:
    """Write a file, or replace it, atomically."""
    if is_remote(url):
        _put(url, content)
        return
    path = Path(url)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Of its own: other threads write other files, some of them with the same stem.
    unfinished = path.with_name(f"{path.name}.{uuid4().hex}.part")
    try:
        unfinished.write_bytes(content)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def create_file(url: str, content: bytes) -> Identity | None:
    """Write a file atomically unless there is one; return its identity, or None if there is."""
    if is_remote(url):
        return _create_object(url, content)
    folder, _, name = url.rpartition("/")
    unfinished = f"{folder}/.{name}.{uuid4().hex}.part"
    try:
        with open(unfinished, "xb") as file:
            file.write(content)
            file.flush()
            found = os.fstat(file.fileno())
        os.link(unfinished, url)
    except FileExistsError:
        return None
    finally:
        with suppress(FileNotFoundError):
            os.unlink(unfinished)
    return found.st_ino, found.st_mtime_ns


def _create_object(url: str, content: bytes) -> Identity | None:
    import obstore
    from obstore.exceptions import AlreadyExistsError

    with _explained(url):
        try:
            return obstore.put(*_object(url), content, mode="create")["e_tag"]
        except AlreadyExistsError:
            return None


def delete_file(url: str) -> None:
    """Delete a file, if it exists."""
    if not is_remote(url):
        Path(url).unlink(missing_ok=True)
        return
    import obstore

    with suppress(FileNotFoundError), _explained(url):
        obstore.delete(*_object(url))


def delete_files(folder: str, paths: Sequence[str]) -> None:
    """Delete files below a folder, in their order, if they exist."""
    if not is_remote(folder):
        for path in paths:
            delete_file(f"{folder}/{path}")
        return
    import obstore

    store, root = _object(folder)
    for some in (
        paths[at : at + _DELETED_AT_ONCE] for at in range(0, len(paths), _DELETED_AT_ONCE)
    ):
        with _explained(folder):
            obstore.delete(store, [f"{root}/{path}" for path in some])


def delete_folder(url: str) -> None:
    """Delete a folder with everything in it, if it exists."""
    if is_remote(url):
        delete_files(url, [file.path for file in find_files(url)])
        return
    with suppress(FileNotFoundError):
        shutil.rmtree(url)


def has_file(url: str) -> bool:
    return identify(url) is not None if is_remote(url) else Path(url).exists()


def is_folder(url: str) -> bool:
    """Whether there are files in a folder."""
    if not is_remote(url):
        return Path(url).is_dir()
    import obstore

    store, path = _object(f"{url}/")
    with _explained(url):
        return any(obstore.list(store, path, chunk_size=1))


def identify(url: str) -> Identity | None:
    """Return the identity of a file; None if it does not exist."""
    if not is_remote(url):
        try:
            found = os.stat(url)
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns
    import obstore

    try:
        with _explained(url):
            return _identity(obstore.head(*_object(url)))
    except FileNotFoundError:
        return None


def identify_from(first: str, last: str) -> dict[str, Identity]:
    """Return the identities of two files of a folder, by one request, if they exist."""
    if not is_remote(first):
        found = {url: identify(url) for url in (first, last)}
        return {url: identity for url, identity in found.items() if identity is not None}
    import obstore

    store, path = _object(first)
    folder, _, name = path.rpartition("/")
    # Objects are listed in the order of their names, beginning after a given one.
    with _explained(first):
        listed = obstore.list(store, f"{folder}/", offset=f"{folder}/{name[:-1]}", chunk_size=16)
        entries = {one["path"]: _identity(one) for one in next(iter(listed), [])}
    wanted = {url: _path_in_store(url) for url in (first, last)}
    return {url: entries[path] for url, path in wanted.items() if path in entries}


def _identity(found: ObjectMeta) -> Identity:
    return found["e_tag"]


def link_file(url: str, to: str) -> None:
    """Have a file at a second place: as a link if the storage has links, else as a copy."""
    if is_remote(url):
        copy_file(url, to)
        return
    path = Path(to)
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        try:
            os.link(url, path)
        except (PermissionError, NotImplementedError):  # a file system without links
            shutil.copyfile(url, path)


def copy_file(url: str, to: str) -> None:
    """Copy a file; raise FileNotFoundError if it does not exist."""
    if not is_remote(url):
        Path(to).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(url, to)
        return
    import obstore

    store, path = _object(url)
    with _explained(url):
        obstore.copy(store, path, _path_in_store(to))


def move_folder(url: str, to: str) -> None:
    """Rename a folder. In an object store, its files are copied, then deleted."""
    if not is_remote(url):
        os.rename(url, to)
        return
    names = list_files(url)
    for name in names:
        copy_file(f"{url}/{name}", f"{to}/{name}")
    for name in names:
        delete_file(f"{url}/{name}")


def list_files(folder: str, prefix: str = "") -> list[str]:
    """Return the paths, below a folder, of all files whose names begin with a prefix."""
    paths = [file.path for file in find_files(folder)]
    return [path for path in paths if path.rpartition("/")[2].startswith(prefix)]


@dataclass(frozen=True)
class FoundFile:
    """A file of a folder."""

    path: str
    """Relative to the folder."""
    size: int
    modified: float
    """Seconds since the epoch."""


def find_files(folder: str, below: bool = True) -> list[FoundFile]:
    """Return all files of a folder, by default also those in folders below it."""
    if not is_remote(folder):
        return list(_files_on_disk(folder, "", below))
    import obstore

    store, path = _object(f"{folder.rstrip('/')}/")
    with _explained(folder):
        if below:
            objects = [one for part in obstore.list(store, path) for one in part]
        else:
            objects = list(obstore.list_with_delimiter(store, path)["objects"])
    return [
        FoundFile(
            one["path"].removeprefix(path).lstrip("/"),
            one["size"],
            one["last_modified"].timestamp(),
        )
        for one in objects
    ]


def _files_on_disk(root: str, folder: str, below: bool) -> Iterator[FoundFile]:
    with suppress(FileNotFoundError), os.scandir(os.path.join(root, folder)) as entries:
        for entry in entries:
            path = f"{folder}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                if below:
                    yield from _files_on_disk(root, f"{path}/", below)
            else:
                with suppress(FileNotFoundError):
                    found = entry.stat(follow_symlinks=False)
                    yield FoundFile(path, found.st_size, found.st_mtime)


def list_folders(folder: str) -> list[str]:
    """Return the names of the folders in a folder; none if it does not exist."""
    if not is_remote(folder):
        with suppress(FileNotFoundError), os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.is_dir()]
        return []
    import obstore

    store, path = _object(f"{folder.rstrip('/')}/")
    with _explained(folder):
        found = obstore.list_with_delimiter(store, path)
    return [one.rstrip("/").rpartition("/")[2] for one in found["common_prefixes"]]


def open_input(url: str) -> str | pa.NativeFile:
    """Return what pyarrow reads a file from."""
    if not is_remote(url):
        return url
    import obstore

    store, path = _object(url)
    with _explained(url):
        found = obstore.get(store, path)
        if found.meta["size"] <= _WHOLE:
            return pa.BufferReader(pa.py_buffer(found.bytes()))
        return pa.PythonFile(_LargeObject(url, found.meta["size"]), mode="r")


class _LargeObject(io.RawIOBase):
    """An object that is read in ranges."""

    def __init__(self, url: str, size: int) -> None:
        self._url, self._size, self._at = url, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        import obstore

        end = self._size if size < 0 else min(self._size, self._at + size)
        if end <= self._at:
            return b""
        with _explained(self._url):
            found = obstore.get_range(*_object(self._url), start=self._at, end=end).to_bytes()
        self._at = end
        return found


@contextmanager
def open_output(url: str) -> Iterator[pa.NativeFile]:
    """Yield a file to write; an object exists only once it is complete."""
    if not is_remote(url):
        os.makedirs(os.path.dirname(url), exist_ok=True)
        with pa.OSFile(url, "wb") as file:
            yield file
        return
    buffer = pa.BufferOutputStream()
    yield buffer
    _put(url, memoryview(buffer.getvalue()).cast("B"))


def _put(url: str, content: bytes | memoryview) -> None:
    import obstore

    with _explained(url):
        obstore.put(*_object(url), content)


def _root(url: str) -> str:
    """Return the URL of the bucket or container of a URL."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _object(url: str) -> tuple[ObjectStore, str]:
    """Return the store of a URL, and the path in it."""
    options = options_of(url) or {}
    return _store(_root(url), tuple(sorted(options.items()))), _path_in_store(url)


def _path_in_store(url: str) -> str:
    return url.removeprefix(_root(url)).lstrip("/")


@lru_cache(maxsize=16)
def _store(root: str, options: tuple[tuple[str, str], ...]) -> ObjectStore:
    from obstore.store import from_url

    given: dict[str, Any] = dict(options)
    client: Any = {name: given.pop(name) for name in _CLIENT_OPTIONS if name in given}
    store: ObjectStore = from_url(
        root.replace("s3a:", "s3:"), config=cast("S3Config", given), client_options=client
    )
    return store


_CLIENT_OPTIONS = ("allow_http", "timeout", "connect_timeout", "proxy_url")


@contextmanager
def _explained(url: str) -> Iterator[None]:
    from obstore import exceptions

    try:
        yield
    except (FileNotFoundError, exceptions.NotFoundError) as error:
        if _NO_BUCKET.search(str(error)):
            raise storage_error(url, error) from None
        raise FileNotFoundError(url) from None
    except exceptions.BaseError as error:
        raise storage_error(url, error) from error


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
            f"the object storage of {_root(url)} has no conditional put",
            hint="commits of two runs could replace each other: use a storage that supports "
            "`If-None-Match: *`, as S3, Azure and Google Cloud Storage do",
            where=url,
        )


def require_reachable(url: str) -> None:
    """Raise what keeps a URL from being read: delta-rs says less about it."""
    if is_remote(url):
        is_folder(url)


def storage_error(url: str, error: BaseException) -> StorageError:
    """Return what to do about the error of an object store."""
    text = str(error)
    host = _root(url)
    if _REFUSED.search(text):
        return StorageError(
            "storage-refused",
            f"the object storage refuses access to {host}",
            hint="check the keys and the region under `storage`, what the keys may do, and the "
            "clock of this machine",
            where=url,
        )
    if _NO_BUCKET.search(text):
        return StorageError(
            "bucket-missing",
            f"there is no bucket {host}",
            hint="create it; Headgate creates no buckets",
            where=url,
        )
    return StorageError(
        "storage-unreachable",
        f"the object storage of {host} does not answer: {_shortened(text)}",
        hint="check `storage.endpoint` and the network, then run again: nothing is lost",
        where=url,
    )


_REFUSED = re.compile(
    r"(?<!\.)\b(?:401|403)\b(?!\.\d)|Unauthorized|Forbidden|Access ?Denied|InvalidAccessKeyId"
    r"|Signature|RequestTimeTooSkewed|AuthorizationFailure|permission",
    re.IGNORECASE,
)
_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|bucket does not exist", re.IGNORECASE)
_MAX_TEXT = 200


def is_storage_error(text: str) -> bool:
    """Whether a message is that of an object store, to delta-rs or to Spark."""
    return bool(_OF_STORE.search(text))


def is_transient(url: str, error: Exception) -> bool:
    """Whether an object store did not answer, so that another attempt may succeed."""
    if not is_remote(url) or not (isinstance(error, StorageError) or is_storage_error(str(error))):
        return False
    code = error.code if isinstance(error, StorageError) else storage_error(url, error).code
    return code == "storage-unreachable"


_OF_STORE = re.compile(
    r"Generic (?:S3|MicrosoftAzure|GCS) error|error sending request|Error performing [A-Z]+ http"
    r"|fs\.s3a|\bs3a://|software\.amazon\.awssdk"
)


def _shortened(text: str) -> str:
    """Return the cause in the first line, without addresses of requests, which may be signed."""
    line = re.sub(r"\(?https?://\S+", "", next(iter(text.splitlines()), ""))
    return line.rpartition(" - ")[2][:_MAX_TEXT]
