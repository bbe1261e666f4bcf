"""The wheel that clusters install: what it has, and that pip takes it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

from headgate.cluster.wheel import build_wheel, pinned_requirements

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("dist"))


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


def test_pip_installs_it(wheel: Path, tmp_path: Path) -> None:
    _pip("install", "--no-deps", "--no-index", "--target", str(tmp_path), str(wheel))
    script = "import headgate.cli.main; print(headgate.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert Path(done.stdout.strip()) == tmp_path / "headgate" / "__init__.py"


def test_it_has_the_files_of_a_wheel_that_is_built(wheel: Path, tmp_path: Path) -> None:
    _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), str(ROOT))
    (built,) = tmp_path.glob("*.whl")
    assert built.name == wheel.name
    with zipfile.ZipFile(built) as one, zipfile.ZipFile(wheel) as other:
        assert {*other.namelist()} == {*one.namelist()}


def test_it_requires_no_pyspark_of_a_cluster(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (info,) = [one for one in zipfile.Path(archive).iterdir() if "dist-info" in one.name]
        package = PathDistribution(info)
        names = {line.partition("=")[0] for line in package.requires or ()}
        (command,) = package.entry_points
    assert "pyspark" not in names
    assert any(name.startswith("deltalake") for name in names)
    assert (command.name, command.value) == ("headgate", "headgate.cli.main:main")


def test_same_modules_are_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    assert build_wheel(tmp_path).read_bytes() == wheel.read_bytes()


def test_all_packages_but_those_of_the_cluster_are_pinned() -> None:
    pinned = pinned_requirements()
    assert all(line.count("==") == 1 for line in pinned)
    names = {line.partition("==")[0] for line in pinned}
    assert {"deltalake", "pyarrow", "pydantic"} <= names
    assert not {"headgate", "pyspark", "py4j"} & names
    assert "mlflow-skinny" in {line.partition("==")[0] for line in pinned_requirements(["models"])}
