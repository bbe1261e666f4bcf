"""What a task finds out about the folders of the driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from headgate.cluster.shared_folders import (
    Place,
    _explained,
    _place,
    _problems,
    paths_of_tasks,
)
from headgate.config import Confluent, Files, Kafka, PipelineConfig, Registry
from headgate.config import Datastream as DatastreamEnvelope
from headgate.errors import SetupError


def _found(places: Sequence[Place]) -> list[str]:
    return [what for _, _, what in _problems(places, 1)]


def test_paths_of_tasks_are_those_on_this_machine(tmp_path: Path) -> None:
    shop = PipelineConfig(
        name="shop",
        source=Files(path=str(tmp_path / "landing")),
        envelope=DatastreamEnvelope(),
        lake=str(tmp_path / "lake"),
    )
    assert [*paths_of_tasks(shop)] == ["lake", "source"]
    games = PipelineConfig(
        name="games",
        source=Kafka(servers="localhost:9092", topics=["games"]),
        registry=Registry(url="https://registry", ca=str(tmp_path / "ca.pem")),
        envelope=Confluent(),
        lake="s3://lake/games",
    )
    assert paths_of_tasks(games) == {"registry.ca": str(tmp_path / "ca.pem")}


def test_lake_must_have_the_file_of_the_driver(tmp_path: Path) -> None:
    mark = tmp_path / ".probe"
    place = _place("lake", str(tmp_path), mark)
    assert _found([place]) == ["does not see what the driver has there"]
    mark.touch()
    assert _found([place]) == []
    assert [*tmp_path.iterdir()] == [mark]


def test_other_content_is_another_file(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("certificate")
    place = _place("registry.ca", str(file), None)
    assert _found([place]) == []
    assert _found([replace(place, digest="other")]) == ["sees another file"]
    file.unlink()
    assert _found([place]) == ["does not see it"]


def test_folder_that_is_only_read_must_have_an_entry_of_the_driver(tmp_path: Path) -> None:
    (tmp_path / "1.proto").touch()
    place = _place("registry.folder", str(tmp_path), None)
    assert _found([place]) == []
    (tmp_path / "1.proto").unlink()
    assert _found([place]) == ["does not see what the driver has there"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('java.io.IOException: Cannot run program "python3.11": error=2', "no `python3.11`"),
        ("[PYTHON_VERSION_MISMATCH] Python in worker has different version", "another version"),
        ("ModuleNotFoundError: No module named 'headgate'", "No module named 'headgate'"),
    ],
)
def test_executors_that_cannot_run_tasks_are_explained(text: str, message: str) -> None:
    explained = _explained(RuntimeError(f"Task 0 failed 4 times\n{text}\nmore"))
    assert isinstance(explained, SetupError)
    assert explained.code == "executors-unfit"
    assert message in explained.message
