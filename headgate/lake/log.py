"""The log of a table: one entry for each version."""

from __future__ import annotations

import json
import re
import uuid
from base64 import b85decode
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Self
from urllib.parse import unquote

from headgate.config.location import is_remote
from headgate.lake.files import Identity
from headgate.lake.storage import (
    MAX_REQUESTS,
    create_file,
    identify,
    identify_from,
    read_file,
)

LOG = "_delta_log"
"""The folder of the log in that of the table."""
# delta-rs misreads escapes of characters beyond U+1FFFF as smaller characters.
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_ENTRY = re.compile(r"(\d{20})\.json")


@dataclass(frozen=True)
class LogEntry:
    """The actions of the commit that made a version."""

    version: int
    actions: tuple[Mapping[str, Any], ...]

    @classmethod
    def read(cls, url: str, version: int) -> Self:
        """Read an entry. Raises `FileNotFoundError` if it does not exist."""
        lines = read_file(_entry_url(url, version)).splitlines()
        return cls(version, tuple(json.loads(line) for line in lines if line))

    @property
    def kinds(self) -> set[str]:
        """The kinds of actions, such as `add` and `metaData`."""
        return {kind for action in self.actions for kind in action}

    @property
    def added(self) -> list[Mapping[str, Any]]:
        return self._with_data("add")

    @property
    def added_files(self) -> list[Mapping[str, Any]]:
        """Added files, also those of compactions."""
        return list(self._all("add"))

    @property
    def removed_files(self) -> list[Mapping[str, Any]]:
        """Removed files, also those of compactions."""
        return list(self._all("remove"))

    @property
    def removed(self) -> list[Mapping[str, Any]]:
        return self._with_data("remove")

    @property
    def change_files(self) -> list[Mapping[str, Any]]:
        return list(self._all("cdc"))

    @property
    def paths(self) -> Iterator[str]:
        """Paths of all files that the commit names, whatever it does to them."""
        for kind in ("add", "remove", "cdc"):
            for file in self._all(kind):
                yield unquote(file["path"])
                vector = vector_path(file.get("deletionVector"))
                if vector is not None:
                    yield vector

    @property
    def changes_rows(self) -> bool:
        return bool(self.added or self.removed or self.change_files)

    @property
    def is_compaction(self) -> bool:
        """Whether files were replaced by others with the same rows."""
        return any(not one.get("dataChange", True) for one in self._all("remove"))

    @property
    def has_deletion_vectors(self) -> bool:
        """Whether an added file has rows that are deleted."""
        return any(file.get("deletionVector") for file in self._all("add"))

    @property
    def transaction(self) -> str | None:
        """The id of the transaction that wrote the entry, if the writer gave it one."""
        info = next(self._all("commitInfo"), {})
        return info.get("txnId")

    @property
    def metadata(self) -> Mapping[str, Any] | None:
        return next(self._all("metaData"), None)

    @property
    def protocol(self) -> Mapping[str, Any] | None:
        return next(self._all("protocol"), None)

    @property
    def marks(self) -> dict[str, int]:
        """Versions of apps that the commit has marked."""
        return {one["appId"]: one["version"] for one in self._all("txn")}

    @cached_property
    def at(self) -> datetime:
        info = next(self._all("commitInfo"), {})
        milliseconds = info.get("inCommitTimestamp") or info.get("timestamp") or 0
        return datetime.fromtimestamp(milliseconds / 1000, UTC)

    def _with_data(self, kind: str) -> list[Mapping[str, Any]]:
        """Return actions that change rows; those of compactions do not."""
        return [one for one in self._all(kind) if one.get("dataChange", True)]

    def _all(self, kind: str) -> Iterator[Mapping[str, Any]]:
        return (action[kind] for action in self.actions if kind in action)


def versions_of_entries(names: Iterable[str]) -> list[int]:
    """Return the versions of entries among the names of files in a log, in order."""
    return sorted(int(match[1]) for name in names if (match := _ENTRY.fullmatch(name)))


def read_entries(url: str, versions: Iterable[int]) -> Iterator[LogEntry]:
    """Read entries in their order, without those that do not exist any more.

    None is kept, since a log may have millions; in an object store, a few are read ahead.
    """
    if not is_remote(url):
        for version in versions:
            yield from _entry_if_any(url, version)
        return
    ahead: deque[Future[list[LogEntry]]] = deque()
    with ThreadPoolExecutor(MAX_REQUESTS, "log") as pool:
        for version in versions:
            ahead.append(pool.submit(_entry_if_any, url, version))
            if len(ahead) > MAX_REQUESTS:
                yield from ahead.popleft().result()
        for future in ahead:
            yield from future.result()


def _entry_if_any(url: str, version: int) -> list[LogEntry]:
    try:
        return [LogEntry.read(url, version)]
    except FileNotFoundError:
        return []


def identify_entry(url: str, version: int) -> Identity | None:
    """Return the identity of an entry, which differs if the table is replaced; None if gone."""
    return identify(_entry_url(url, version))


def identify_entry_and_next(url: str, version: int) -> tuple[Identity | None, Identity | None]:
    """Return the same of a version and of the one after it, by one request."""
    one, following = _entry_url(url, version), _entry_url(url, version + 1)
    found = identify_from(one, following)
    return found.get(one), found.get(following)


def identify_origin(url: str) -> Identity | None:
    """Return what distinguishes a log from that of another table of the same name.

    That is its first entry; once this has expired, there is a checkpoint.
    """
    return identify_entry(url, 0) or identify(f"{url}/{LOG}/_last_checkpoint")


def write_entry(url: str, version: int, actions: Iterable[Mapping[str, Any]]) -> Identity | None:
    """Write the entry of a version; return None if another writer has written it."""
    entry = _entry_url(url, version)
    content = "\n".join(map(_ENCODER.encode, actions)).encode()
    written = create_file(entry, content)
    # If the response of a store is lost, the request is repeated, and finds what it has written.
    if written is None and read_file(entry) == content:
        return identify(entry)
    return written


def vector_path(vector: Mapping[str, Any] | None) -> str | None:
    """Return the path of the file with a deletion vector; None if the log itself has the vector.

    An absolute path stays absolute.
    """
    match vector and vector["storageType"]:
        case "u":
            encoded = str(vector["pathOrInlineDv"]) if vector else ""
            prefix, name = encoded[:-_UUID_LENGTH], encoded[-_UUID_LENGTH:]
            number = uuid.UUID(bytes=b85decode(name.translate(_FROM_Z85)))
            return f"{prefix and prefix + '/'}deletion_vector_{number}.bin"
        case "p":
            return unquote(str(vector["pathOrInlineDv"])) if vector else None
    return None


_UUID_LENGTH = 20
"""Characters of a UUID in Base85."""
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_FROM_Z85 = str.maketrans(_Z85, _B85)
"""Delta writes UUIDs in the alphabet of ZeroMQ, Python reads that of Git."""


def _entry_url(url: str, version: int) -> str:
    return f"{url}/{LOG}/{version:020d}.json"
