"""A small file system in memory, which can be made larger while it is in use."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class SmallDisk:
    """A mounted file system."""

    path: Path

    def resize(self, kilobytes: int) -> None:
        _run("mount", "-o", f"remount,size={kilobytes}k", str(self.path))


@contextmanager
def small_disk(path: Path, kilobytes: int) -> Iterator[SmallDisk]:
    """Mount a file system; skip the test where that is not allowed."""
    path.mkdir(parents=True)
    try:
        _run("mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(path))
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs the right to mount a file system")
    try:
        yield SmallDisk(path)
    finally:
        _run("umount", "--lazy", str(path))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, env={"PATH": os.environ["PATH"]})
