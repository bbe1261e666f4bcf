"""The archive of Spark's classes: used if there is one, never in the way."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from time import time
from typing import Any

import pytest

from headgate.engine import session
from headgate.jars import class_archive
from headgate.jars.class_archive import archive_options, build_archive


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "classes-1.jsa"
    monkeypatch.setattr(class_archive, "_archive", lambda: path)
    return path


def runs(monkeypatch: pytest.MonkeyPatch, result: Exception | bytes) -> list[str]:
    """Replace the process that writes the archive; return its options."""
    options = []

    def run(command: Sequence[str], env: dict[str, str], **_: Any) -> None:
        options.append(env["SPARK_SUBMIT_OPTS"])
        if isinstance(result, Exception):
            raise result
        dump = options[-1].split()[0]
        Path(dump.removeprefix("-XX:ArchiveClassesAtExit=")).write_bytes(result)

    monkeypatch.setattr(subprocess, "run", run)
    return options


def test_built_once_and_then_used(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outdated, *others = (archive.with_name(f"classes-{name}.jsa") for name in "0ab")
    for age, path in enumerate((outdated, *others), start=-3):
        path.touch()
        os.utime(path, (time() + age, time() + age))
    options = runs(monkeypatch, b"classes")
    said: list[str] = []
    assert archive_options() is None
    build_archive(said.append)
    build_archive(said.append)
    assert archive.read_bytes() == b"classes"
    assert [path.exists() for path in (outdated, *others)] == [False, True, True]
    assert len(options) == len(said) == 1
    assert f"-XX:SharedArchiveFile={archive} -Xshare:auto" in str(archive_options())


@pytest.mark.parametrize(
    "failure", [subprocess.CalledProcessError(1, "python"), OSError("no space left")]
)
def test_failure_to_build_it_is_no_error(
    archive: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    runs(monkeypatch, failure)
    said: list[str] = []
    build_archive(said.append)
    assert "without" in said[-1]
    assert archive_options() is None


def test_options_of_the_user_stay(archive: Path) -> None:
    archive.touch()
    own = "-Dlog4j2.configurationFile=own.xml -XX:SharedArchiveFile=own.jsa"
    assert session.java_options(own) == own
    assert session.java_options("-Xmx2g").startswith("-Xmx2g -Dlog4j2.configurationFile=")
    assert str(archive) in session.java_options("")
    archive.unlink()
    assert "Archive" not in session.java_options("")
