"""What the lake needs of a storage for its files."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

Identity = object
"""What distinguishes a file from one that replaced it: inode and time, or the object's tag."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file of a folder."""

    path: str
    """Relative to the folder."""
    size: int
    modified: float
    """Seconds since the epoch."""


class Files(Protocol):
    """A storage: a disk of this machine, or an object store."""

    def read(self, url: str) -> bytes:
        """Return the content of a file; raise FileNotFoundError if it does not exist."""
        ...

    def write(self, url: str, content: bytes) -> None:
        """Write a file, or replace it, atomically."""
        ...

    def create(self, url: str, content: bytes) -> Identity | None:
        """Write a file atomically unless there is one; return its identity, or None if there is."""
        ...

    def delete(self, url: str) -> None:
        """Delete a file, if it exists."""
        ...

    def delete_all(self, folder: str, paths: Sequence[str]) -> None:
        """Delete files below a folder, in their order, if they exist.

        One that cannot be deleted does not keep the rest; the first error is raised afterwards.
        """
        ...

    def delete_folder(self, url: str) -> None:
        """Delete a folder with everything in it, if it exists."""
        ...

    def identify(self, url: str) -> Identity | None:
        """Return the identity of a file; None if it does not exist."""
        ...

    def identify_from(self, first: str, last: str) -> dict[str, Identity]:
        """Return the identities of two files of a folder, by one request, if they exist."""
        ...

    def link(self, url: str, to: str) -> None:
        """Have a file at a second place: as a link if the storage has links, else as a copy."""
        ...

    def copy(self, url: str, to: str) -> None:
        """Copy a file; raise FileNotFoundError if it does not exist."""
        ...

    def move_folder(self, url: str, to: str) -> None:
        """Rename a folder. In an object store, its files are copied, then deleted."""
        ...

    def is_folder(self, url: str) -> bool:
        """Whether there are files in a folder."""
        ...

    def find(self, folder: str, below: bool) -> list[FoundFile]:
        """Return all files of a folder, maybe also those in folders below it."""
        ...

    def folders(self, folder: str) -> list[str]:
        """Return the names of the folders in a folder; none if it does not exist."""
        ...

    def open_input(self, url: str) -> str | pa.NativeFile:
        """Return what pyarrow reads a file from."""
        ...

    def open_output(self, url: str) -> AbstractContextManager[pa.NativeFile]:
        """Return a file to write; an object exists only once it is complete."""
        ...
