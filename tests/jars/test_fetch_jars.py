from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from headgate.errors import SetupError
from headgate.jars.jars import LockedJar, fetch_jars, jar_paths, locked_jars

Said = list[str]


@pytest.fixture(scope="module")
def spark_jars() -> dict[str, Path]:
    """The real jars by file name, from the jar home that all tests share."""
    return {path.name: path for path in fetch_jars(["spark"], print)["spark"]}


@pytest.fixture
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADGATE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


class Repository:
    """Stands in for Ivy: serves files, or nonsense for those it does not have."""

    def __init__(self, files: dict[str, Path]) -> None:
        self.files = files
        self.asked: list[str] = []

    def retrieve(self, conf: str, jars: Sequence[LockedJar], target: Path, work: Path) -> None:
        target.mkdir(parents=True)
        for jar in jars:
            self.asked.append(jar.file_name)
            if jar.file_name in self.files:
                shutil.copy(self.files[jar.file_name], target)
            else:
                (target / jar.file_name).write_bytes(bytes(jar.size))


def test_jars_are_fetched_once(spark_jars: dict[str, Path], empty_home: Path) -> None:
    reported: Said = []
    repository = Repository(spark_jars)
    first = fetch_jars(["spark"], reported.append, repository.retrieve)
    second = fetch_jars(["spark"], reported.append, repository.retrieve)
    assert first == second == {"spark": jar_paths("spark")}
    assert len(repository.asked) == len(locked_jars("spark"))
    assert reported == ["Downloading 9 jars for spark (23 MB)"]
    assert not list((empty_home / "jars").glob(".fetching*"))


def test_changed_jar_is_refused(spark_jars: dict[str, Path], empty_home: Path) -> None:
    victim = locked_jars("spark")[0].file_name
    tampered = {name: path for name, path in spark_jars.items() if name != victim}
    with pytest.raises(SetupError, match=victim) as caught:
        fetch_jars(["spark"], print, Repository(tampered).retrieve)
    assert caught.value.code == "jar-changed"
    assert not list(empty_home.rglob(victim))
    with pytest.raises(SetupError) as caught:
        jar_paths("spark")
    assert caught.value.code == "jars-missing"
    assert caught.value.hint == "run: headgate jars spark"


def test_jars_put_there_by_hand_are_taken(spark_jars: dict[str, Path], empty_home: Path) -> None:
    (empty_home / "jars" / "spark").mkdir(parents=True)
    for path in spark_jars.values():
        shutil.copy(path, empty_home / "jars" / "spark")
    repository = Repository({})
    fetch_jars(["spark"], print, repository.retrieve)
    assert repository.asked == []


def test_only_a_truncated_jar_is_fetched_again(
    spark_jars: dict[str, Path], empty_home: Path
) -> None:
    repository = Repository(spark_jars)
    victim = fetch_jars(["spark"], print, repository.retrieve)["spark"][0]
    victim.write_bytes(b"half")
    repository.asked.clear()
    fetch_jars(["spark"], print, repository.retrieve)
    assert repository.asked == [victim.name]
