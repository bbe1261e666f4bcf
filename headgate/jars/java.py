"""Find Java as Spark does: in `$JAVA_HOME`, then on `$PATH`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from headgate.errors import SetupError

MIN_VERSION = 17
_HINT = f"install Java {MIN_VERSION} or newer and set JAVA_HOME to its folder"
# 17.0.15, 25, 22-ea, and 1.8.0_392 for Java 8
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


@dataclass(frozen=True)
class Java:
    """A Java installation that is recent enough."""

    path: Path
    major: int


def find_java() -> Java:
    """Return the Java to use; SetupError `java-missing` if none is found or it is too old."""
    path = _java_path(os.environ.get("JAVA_HOME"), os.environ.get("PATH"))
    if path is None:
        raise SetupError("java-missing", "Java is neither in JAVA_HOME nor on PATH", hint=_HINT)
    return _checked(path)


def parse_major(output: str) -> int | None:
    """Return the major version in the output of `java -version`."""
    found = _VERSION.search(output)
    return int(found.group(1)) if found else None


def _java_path(java_home: str | None, search_path: str | None) -> Path | None:
    if java_home:
        candidate = Path(java_home, "bin", "java")
        if os.access(candidate, os.X_OK):
            return candidate
    found = shutil.which("java", path=search_path)
    return Path(found) if found else None


@cache
def _checked(path: Path) -> Java:
    try:
        run = subprocess.run(
            [path, "-version"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SetupError("java-missing", f"{path} cannot be run: {error}", hint=_HINT) from error
    major = parse_major(run.stdout)
    if run.returncode != 0 or major is None:
        raise SetupError(
            "java-missing", f"{path} -version failed: {run.stdout.strip()}", hint=_HINT
        )
    if major < MIN_VERSION:
        raise SetupError(
            "java-missing",
            f"{path} is Java {major}; {MIN_VERSION} or newer is required",
            hint=_HINT,
        )
    return Java(path, major)
