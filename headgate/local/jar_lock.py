"""The jars that may be fetched, as recorded in `jars.lock`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_LOCK_FILE = Path(__file__).with_name("jars.lock")
_LINE = re.compile(
    r"(?P<conf>[a-z]+) "
    r"(?P<organisation>[\w.-]+):(?P<name>[\w.-]+):(?P<revision>[\w.-]+)"
    r"(?::(?P<classifier>[\w.-]+))?(?:@(?P<extension>[\w.]+))? "
    r"(?P<sha256>[0-9a-f]{64}) (?P<size>\d+)",
    re.ASCII,
)


@dataclass(frozen=True)
class LockedJar:
    """One file to fetch, and how to know that it is the right one."""

    conf: str
    organisation: str
    name: str
    revision: str
    classifier: str | None
    extension: str
    sha256: str
    size: int

    @property
    def file_name(self) -> str:
        """The name the file has in the jar home."""
        classifier = f"-{self.classifier}" if self.classifier else ""
        return f"{self.name}-{self.revision}{classifier}.{self.extension}"


def parse_lock(text: str) -> tuple[LockedJar, ...]:
    """The jars of a lock file's text, in its order."""
    jars = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line or line.startswith("#"):
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            raise ValueError(
                f"jars.lock line {number}: not 'conf coordinates sha256 bytes': {line}"
            )
        parts = found.groupdict()
        jars.append(
            LockedJar(
                conf=parts["conf"],
                organisation=parts["organisation"],
                name=parts["name"],
                revision=parts["revision"],
                classifier=parts["classifier"],
                extension=parts["extension"] or "jar",
                sha256=parts["sha256"],
                size=int(parts["size"]),
            )
        )
    return tuple(jars)


@cache
def locked_jars(conf: str) -> tuple[LockedJar, ...]:
    """The jars of one conf."""
    jars = tuple(jar for jar in parse_lock(_LOCK_FILE.read_text("ascii")) if jar.conf == conf)
    if not jars:
        raise ValueError(f"{conf!r} is not a conf of jars.lock")
    return jars


def lock_digest(jars: Sequence[LockedJar]) -> str:
    """A short name for exactly these files with exactly these sums."""
    sums = "\n".join(f"{jar.file_name} {jar.sha256}" for jar in jars)
    return hashlib.sha256(sums.encode()).hexdigest()[:16]
