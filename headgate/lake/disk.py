"""Files on this machine, by path."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

import pyarrow as pa

from headgate.lake.files import Files, FoundFile, Identity

_BUFFER = 1 << 18
"""Bytes to write at once: Parquet files are written in many small parts."""


class Disk(Files):
    """The file systems of this machine."""

    def read(self, url: str) -> bytes:
        return Path(url).read_bytes()

    def write(self, url: str, content: bytes) -> None:
        path = Path(url)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Of its own: other threads write other files, some of them with the same stem.
        unfinished = path.with_name(f"{path.name}.{uuid4().hex}.part")
        try:
            unfinished.write_bytes(content)
            os.replace(unfinished, path)
        finally:
            unfinished.unlink(missing_ok=True)

    def create(self, url: str, content: bytes) -> Identity | None:
        folder, _, name = url.rpartition("/")
        unfinished = f"{folder}/.{name}.{uuid4().hex}.part"
        try:
            with _create(unfinished) as file:
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

    def delete(self, url: str) -> None:
        Path(url).unlink(missing_ok=True)

    def delete_all(self, folder: str, paths: Sequence[str]) -> None:
        errors = []
        for path in paths:
            try:
                self.delete(f"{folder}/{path}")
            except OSError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def delete_folder(self, url: str) -> None:
        with suppress(FileNotFoundError):
            shutil.rmtree(url)

    def delete_empty_folder(self, url: str) -> None:
        """Delete a folder that has no files, however deep they could be."""
        for folder, _, _ in os.walk(url, topdown=False):
            with suppress(OSError):  # not empty, perhaps only since now
                os.rmdir(folder)

    def identify(self, url: str) -> Identity | None:
        try:
            found = os.stat(url)
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns

    def identify_from(self, first: str, last: str) -> dict[str, Identity]:
        found = {url: self.identify(url) for url in (first, last)}
        return {url: identity for url, identity in found.items() if identity is not None}

    def link(self, url: str, to: str) -> None:
        path = Path(to)
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            try:
                os.link(url, path)
            except (PermissionError, NotImplementedError):  # a file system without links
                shutil.copyfile(url, path)

    def copy(self, url: str, to: str) -> None:
        Path(to).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(url, to)

    def move_folder(self, url: str, to: str) -> None:
        os.rename(url, to)

    def is_folder(self, url: str) -> bool:
        return Path(url).is_dir()

    def find(self, folder: str, below: bool) -> list[FoundFile]:
        return list(_files_in(folder, "", below))

    def folders(self, folder: str) -> list[str]:
        with suppress(FileNotFoundError), os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.is_dir()]
        return []

    def open_input(self, url: str) -> str:
        return url

    @contextmanager
    def open_output(self, url: str) -> Iterator[pa.NativeFile]:
        try:
            file = pa.OSFile(url, "wb")
        except FileNotFoundError:
            os.makedirs(os.path.dirname(url), exist_ok=True)
            file = pa.OSFile(url, "wb")
        with file, pa.BufferedOutputStream(file, _BUFFER) as buffered:
            yield buffered


def _create(path: str) -> BinaryIO:
    """Create a file, and its folder if there is none."""
    try:
        return open(path, "xb")
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return open(path, "xb")


def _files_in(root: str, folder: str, below: bool) -> Iterator[FoundFile]:
    with suppress(FileNotFoundError), os.scandir(os.path.join(root, folder)) as entries:
        for entry in entries:
            path = f"{folder}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                if below:
                    yield from _files_in(root, f"{path}/", below)
            else:
                with suppress(FileNotFoundError):
                    found = entry.stat(follow_symlinks=False)
                    yield FoundFile(path, found.st_size, found.st_mtime)
