"""A folder of files: lists the complete ones, and opens them without following a link."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from headgate.config import Files
from headgate.config.location import is_remote
from headgate.errors import SourceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HIDDEN = (".", "_")
_UNFINISHED = (".tmp", ".part", ".crc", ".inprogress", "._COPYING_")
_TIME_IN_PATH = re.compile(r"/(\d{4})/(\d{2})/(\d{2})/(\d{2})/(\d{2})/[^/]+$")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LINK = "it is a link"
_SPECIAL = "it is not a regular file"
_WHY_NOT_OPENED = {
    errno.ELOOP: _LINK,
    errno.ENOTDIR: "a folder of its path is a link, or not a folder",
    errno.ENOENT: "it no longer exists",
}


@dataclass(frozen=True, order=True)
class LandedFile:
    """A listed file. A file that has grown since compares as a different one."""

    path: str
    size: int
    modified: int
    """Modification time in milliseconds since the epoch."""

    @property
    def time(self) -> datetime:
        """The time in the path; the modification time if the path has none."""
        if found := _TIME_IN_PATH.search(self.path):
            try:
                year, month, day, hour, minute = map(int, found.groups())
                return datetime(year, month, day, hour, minute, tzinfo=UTC)
            except ValueError:
                pass
        return datetime.fromtimestamp(self.modified / 1000, UTC)


class SkippedFile(Exception):
    """A file that is not read: a link, a special file, or one that cannot be opened."""


class Listing(NamedTuple):
    """The files of a folder, earliest first, and why others are skipped, by path."""

    files: list[LandedFile]
    skipped: Mapping[str, str]


def list_files(spark: SparkSession, source: Files) -> Listing:
    """List complete files; hidden and temporary files are left out.

    Of a local folder, only regular files are read. A link could lead to any file of the machine.
    """
    skipped: dict[str, str] = {}
    if is_remote(source.path):
        listed = _listed_by_spark(spark, source.path)
    else:
        listed = _walk(folder_path(source.path), skipped)
    found = [file for file in listed if source.start is None or file.time >= source.start]
    return Listing(sorted(found, key=lambda file: (file.time, file.path)), skipped)


def read_local(folder: str, path: str, max_size: int) -> tuple[bytes | None, LandedFile]:
    """Return a file's content, and its size and modification time before it was read.

    The content is None if it is larger than `max_size`. Raises SkippedFile unless the path leads
    through folders, none of them a link, to a regular file.
    """
    with opened(folder, path) as file:
        found = os.fstat(file.fileno())
        landed = LandedFile(path, found.st_size, found.st_mtime_ns // 1_000_000)
        # Bytes that are added while it is read are read once the larger file is listed.
        return file.read(found.st_size) if found.st_size <= max_size else None, landed


def folder_path(path: str) -> str:
    """Return the path of a local folder, which may be given as a `file:` URL."""
    return path.split(":", 1)[1] if path.startswith("file:") else path


@contextmanager
def opened(folder: str, path: str) -> Iterator[BinaryIO]:
    """Open a file; raise SkippedFile unless no part of its path in the folder is a link."""
    if is_remote(folder):
        raise SkippedFile("it is not on this machine")
    try:
        descriptor = _open_inside(folder_path(folder), path)
    except OSError as error:
        raise SkippedFile(_reason(error)) from None
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise SkippedFile(_SPECIAL)
        yield file


def _open_inside(folder: str, path: str) -> int:
    """Open a file below a folder, one name after the other, so that none of them can be a link.

    A FIFO is opened without waiting for a writer.
    """
    prefix = folder.rstrip("/") + "/"
    *folders, name = path.removeprefix(prefix).split("/")
    if not path.startswith(prefix) or {"", ".", ".."} & {*folders, name}:
        raise SkippedFile(f"it is outside of {folder}")
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for inner in folders:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
            outer, opened = opened, os.open(inner, flags, dir_fd=opened)
            os.close(outer)
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=opened)
    finally:
        os.close(opened)


def _reason(error: OSError) -> str:
    return _WHY_NOT_OPENED.get(error.errno or 0) or error.strerror or str(error)


def is_denied(path: str) -> bool:
    """Whether a file exists, but may not be read."""
    return os.path.exists(path) and not os.access(path, os.R_OK)


def _walk(root: str, skipped: dict[str, str]) -> Iterator[LandedFile]:
    """List regular files; add everything else to `skipped`, with the reason."""
    if not os.path.isdir(root):
        raise SourceError(
            "source-missing",
            f"no folder {root}",
            hint="check `source.files.path`; headgate simulate shop creates one",
        )
    if not os.access(root, os.R_OK | os.X_OK):
        raise SourceError(
            "source-missing",
            f"the folder {root} cannot be read",
            hint="let the user of the run list and open it",
        )
    folders = [root]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(folder) as listed:
                entries = list(listed)
        except FileNotFoundError:  # removed since it was listed
            continue
        except OSError as error:
            skipped[folder] = _reason(error)
            continue
        for entry in entries:
            if entry.name.startswith(_HIDDEN):
                continue
            if not _is_text(entry.name):
                skipped[_shown(entry.path)] = "its name is not UTF-8"
            elif entry.is_symlink():
                skipped[entry.path] = _LINK
            elif entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            elif not entry.name.endswith(_UNFINISHED):
                yield from _listed(entry, skipped)


def _is_text(name: str) -> bool:
    return _shown(name) == name


def _shown(path: str) -> str:
    """Return a path as text; bytes that are not UTF-8 are replaced."""
    return path.encode("utf-8", "replace").decode()


def _listed(entry: os.DirEntry[str], skipped: dict[str, str]) -> Iterator[LandedFile]:
    try:
        found = entry.stat(follow_symlinks=False)
    except FileNotFoundError:  # removed since its folder was listed
        return
    except OSError as error:
        skipped[entry.path] = _reason(error)
        return
    if stat.S_ISREG(found.st_mode):
        yield LandedFile(entry.path, found.st_size, found.st_mtime_ns // 1_000_000)
    else:
        skipped[entry.path] = _SPECIAL


def _listed_by_spark(spark: SparkSession, path: str) -> Iterator[LandedFile]:
    rows = (
        spark.read.format("binaryFile")
        .option("recursiveFileLookup", "true")
        .load(path)
        .select("path", "length", "modificationTime")
    )
    for row in rows.toLocalIterator():
        if not row["path"].endswith(_UNFINISHED):
            yield LandedFile(row["path"], row["length"], milliseconds(row["modificationTime"]))


def milliseconds(time: datetime) -> int:
    """Return a time in milliseconds since the epoch; local time if it has no zone."""
    return (time.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1)
