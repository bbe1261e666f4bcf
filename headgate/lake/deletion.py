"""Files that can be deleted, and those that are left, each with the reason."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FileKind(StrEnum):
    """What a file of a lake is."""

    DATA = "data file"
    VECTOR = "deletion vector"
    CHANGES = "change data"
    ENTRY = "log entry"
    CHECKPOINT = "checkpoint"
    STAGED = "staged file"
    LINK = "link to a staged file"
    MERGE = "changes to merge"
    UNFINISHED = "unfinished file"


@dataclass(frozen=True, slots=True)
class Deletion:
    """A file to delete."""

    path: str
    """Relative to the folder of its table."""
    size: int
    kind: FileKind
    why: str
    """Why it is not needed."""


@dataclass(frozen=True, slots=True)
class Left:
    """Something that is left alone."""

    name: str
    why: str
