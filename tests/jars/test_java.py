from __future__ import annotations

from pathlib import Path

import pytest

from headgate.errors import SetupError
from headgate.jars.java import find_java, parse_major


@pytest.mark.parametrize(
    ("output", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('openjdk version "25" 2025-09-16', 25),
        ('openjdk version "22-ea" 2024-03-19', 22),
        ('java version "1.8.0_392"', 8),
        ('Picked up JAVA_TOOL_OPTIONS: -Dx=1\nopenjdk version "21.0.1"', 21),
        ("command not found", None),
    ],
)
def test_major_version_is_read(output: str, major: int | None) -> None:
    assert parse_major(output) == major


def write_java(folder: Path, version: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return java


def test_java_home_comes_before_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_home = write_java(tmp_path / "home", "21.0.1")
    on_path = write_java(tmp_path / "path", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{on_path.parent}:/usr/bin:/bin")
    assert (find_java().path, find_java().major) == (at_home, 21)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "empty"))
    assert (find_java().path, find_java().major) == (on_path, 17)


def test_old_java_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_java(tmp_path, "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SetupError, match="is Java 11; 17 or newer is required") as caught:
        find_java()
    assert caught.value.code == "java-missing"


def test_no_java_says_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match="JAVA_HOME nor on PATH") as caught:
        find_java()
    assert caught.value.code == "java-missing"
    assert "JAVA_HOME" in (caught.value.hint or "")
