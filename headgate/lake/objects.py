"""Files in an object store, by URL."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import obstore
import pyarrow as pa
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError
from obstore.store import from_url

from headgate.config.storage import options_of
from headgate.errors import StorageError
from headgate.lake.files import Files, FoundFile, Identity
from headgate.lake.storage_errors import is_of_missing_bucket, root_of, storage_error

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore, S3Config

_WHOLE = 64 << 20
"""Bytes up to which an object is read in one request."""

_DELETED_AT_ONCE = 1_000
"""Objects that S3 deletes in one request."""

_REQUESTS = 16
"""Objects that are deleted at the same time by a request each."""

_CLIENT_OPTIONS = ("allow_http", "timeout", "connect_timeout", "proxy_url")


class Objects(Files):
    """Object stores: S3 and servers with its API, Azure, Google Cloud Storage."""

    def read(self, url: str) -> bytes:
        with _explained(url):
            return obstore.get(*_object(url)).bytes().to_bytes()

    def write(self, url: str, content: bytes | memoryview) -> None:
        with _explained(url):
            obstore.put(*_object(url), content)

    def create(self, url: str, content: bytes) -> Identity | None:
        with _explained(url):
            try:
                return obstore.put(*_object(url), content, mode="create")["e_tag"]
            except AlreadyExistsError as error:
                # S3 also answers so while another write to the object is under way, which may fail.
                with _as_undecided(url, error):
                    obstore.head(*_object(url))
                return None

    def delete(self, url: str) -> None:
        with suppress(FileNotFoundError), _explained(url):
            obstore.delete(*_object(url))

    def delete_all(self, folder: str, paths: Sequence[str]) -> None:
        store, root = _object(folder)
        errors: list[StorageError] = []
        for start in range(0, len(paths), _DELETED_AT_ONCE):
            some = paths[start : start + _DELETED_AT_ONCE]
            try:
                with _explained(folder):
                    obstore.delete(store, [f"{root}/{path}" for path in some])
            except FileNotFoundError:  # Google Cloud Storage stops at an object that is gone
                errors += self._delete_each(folder, some)
            except StorageError as error:
                if error.code != "storage-refused":
                    raise
                errors += self._delete_each(folder, some)
        if errors:
            raise errors[0]

    def _delete_each(self, folder: str, paths: Sequence[str]) -> list[StorageError]:
        """Delete objects one by one, and return the errors of those that cannot be."""

        def delete(path: str) -> StorageError | None:
            try:
                self.delete(f"{folder}/{path}")
            except StorageError as error:
                return error
            return None

        with ThreadPoolExecutor(_REQUESTS, "delete") as pool:
            return [error for error in pool.map(delete, paths) if error is not None]

    def delete_folder(self, url: str) -> None:
        self.delete_all(url, [file.path for file in self.find(url, below=True)])

    def identify(self, url: str) -> Identity | None:
        try:
            with _explained(url):
                return _identity(obstore.head(*_object(url)))
        except FileNotFoundError:
            return None

    def identify_from(self, first: str, last: str) -> dict[str, Identity]:
        store, path = _object(first)
        folder, _, name = path.rpartition("/")
        # Objects are listed in the order of their names, beginning after a given one.
        with _explained(first):
            after = f"{folder}/{name[:-1]}"
            listed = obstore.list(store, f"{folder}/", offset=after, chunk_size=16)
            entries = {one["path"]: _identity(one) for one in next(iter(listed), [])}
        wanted = {url: _path_in_store(url) for url in (first, last)}
        return {url: entries[path] for url, path in wanted.items() if path in entries}

    def link(self, url: str, to: str) -> None:
        self.copy(url, to)

    def copy(self, url: str, to: str) -> None:
        store, path = _object(url)
        with _explained(url):
            obstore.copy(store, path, _path_in_store(to))

    def move_folder(self, url: str, to: str) -> None:
        paths = [file.path for file in self.find(url, below=True)]
        for path in paths:
            self.copy(f"{url}/{path}", f"{to}/{path}")
        self.delete_all(url, paths)

    def is_folder(self, url: str) -> bool:
        store, path = _object(f"{url}/")
        with _explained(url):
            return any(obstore.list(store, path, chunk_size=1))

    def find(self, folder: str, below: bool) -> list[FoundFile]:
        store, path = _object(f"{folder.rstrip('/')}/")
        with _explained(folder):
            if below:
                objects = [one for part in obstore.list(store, path) for one in part]
            else:
                objects = list(obstore.list_with_delimiter(store, path)["objects"])
        return [_found(one, path) for one in objects]

    def folders(self, folder: str) -> list[str]:
        store, path = _object(f"{folder.rstrip('/')}/")
        with _explained(folder):
            found = obstore.list_with_delimiter(store, path)
        return [one.rstrip("/").rpartition("/")[2] for one in found["common_prefixes"]]

    def open_input(self, url: str) -> pa.NativeFile:
        with _explained(url):
            found = obstore.get(*_object(url))
            if found.meta["size"] <= _WHOLE:
                return pa.BufferReader(pa.py_buffer(found.bytes()))
            return pa.PythonFile(_LargeObject(url, found.meta["size"]), mode="r")

    @contextmanager
    def open_output(self, url: str) -> Iterator[pa.NativeFile]:
        buffer = pa.BufferOutputStream()
        yield buffer
        self.write(url, memoryview(buffer.getvalue()).cast("B"))


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
        end = self._size if size < 0 else min(self._size, self._at + size)
        if end <= self._at:
            return b""
        with _explained(self._url):
            found = obstore.get_range(*_object(self._url), start=self._at, end=end).to_bytes()
        self._at = end
        return found


def _identity(found: ObjectMeta) -> Identity:
    return found["e_tag"]


def _found(one: ObjectMeta, folder: str) -> FoundFile:
    path = one["path"].removeprefix(folder).lstrip("/")
    return FoundFile(path, one["size"], one["last_modified"].timestamp())


def _object(url: str) -> tuple[ObjectStore, str]:
    """Return the store of a URL, and the path in it."""
    options = options_of(url) or {}
    return _store(root_of(url), tuple(sorted(options.items()))), _path_in_store(url)


def _path_in_store(url: str) -> str:
    return url.removeprefix(root_of(url)).lstrip("/")


@lru_cache(maxsize=16)
def _store(root: str, options: tuple[tuple[str, str], ...]) -> ObjectStore:
    given: dict[str, Any] = dict(options)
    client: Any = {name: given.pop(name) for name in _CLIENT_OPTIONS if name in given}
    store: ObjectStore = from_url(
        root.replace("s3a:", "s3:"), config=cast("S3Config", given), client_options=client
    )
    return store


@contextmanager
def _as_undecided(url: str, error: BaseException) -> Iterator[None]:
    """Raise that another attempt is needed if an object that is in the way does not exist."""
    try:
        yield
    except (FileNotFoundError, NotFoundError):
        raise StorageError(
            "storage-unreachable",
            f"the object storage of {root_of(url)} has not decided who writes an object",
            hint="run again: nothing is lost",
            where=url,
        ) from error


@contextmanager
def _explained(url: str) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, NotFoundError) as error:
        if is_of_missing_bucket(str(error)):
            raise storage_error(url, error) from None
        raise FileNotFoundError(url) from None
    except BaseError as error:
        raise storage_error(url, error) from error
