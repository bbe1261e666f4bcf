"""What the pack has, and when it is built."""

from __future__ import annotations

import os
import tarfile
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path

import pytest

from headgate.cluster import pack
from headgate.cluster.pack import PackedFile, build_pack, required_packages
from headgate.errors import SetupError


def test_pack_has_what_headgate_requires_and_nothing_else() -> None:
    packages = required_packages()
    assert {"headgate", "pyarrow", "deltalake", "datafusion", "obstore", "protobuf"} <= {*packages}
    # of the cluster, of extras, for development
    assert not {"pyspark", "py4j", "psutil", "mlflow-skinny", "pytest", "mypy"} & {*packages}


def test_extras_of_headgate_and_of_its_requirements_count() -> None:
    assert "httpx2" in required_packages() or "httpx" in required_packages()  # of confluent-kafka
    assert {"mlflow-skinny", "scikit-learn"} <= {*required_packages(["models"])}


def _files(folder: Path, **content: str) -> list[PackedFile]:
    for name, text in content.items():
        (folder / name).write_text(text)
    return [PackedFile(name, folder / name, text) for name, text in content.items()]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[PackedFile]:
    """A pack of two files, in a home of its own."""
    files = _files(tmp_path, a="1", b="2")
    monkeypatch.setenv("HEADGATE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(pack, "_files", lambda packages: iter(files))
    return files


def test_same_files_are_packed_once(small: list[PackedFile]) -> None:
    reports: list[str] = []
    first = build_pack(reports.append)
    content = first.read_bytes()
    os.utime(small[0].path, (0, 0))
    assert build_pack(reports.append) == first
    assert len(reports) == 1
    first.unlink()
    small.reverse()
    assert build_pack(reports.append).read_bytes() == content
    with tarfile.open(first) as archive:
        assert archive.getnames() == ["a", "b"]


def test_other_content_is_another_pack(small: list[PackedFile], tmp_path: Path) -> None:
    first = build_pack()
    small[:] = _files(tmp_path, a="1", b="3")
    assert build_pack() != first


def test_only_packs_that_nobody_uses_are_deleted(small: list[PackedFile], tmp_path: Path) -> None:
    built = []
    for number in range(4):
        small[:] = _files(tmp_path, a=str(number))
        built.append(build_pack())
        os.utime(built[-1], (number, number))
    assert all(one.exists() for one in built)
    for released in built[1:]:
        os.close(pack._used.pop(released))
    small[:] = _files(tmp_path, a="new")
    newest = build_pack()
    # The first is in use; of the others, the last two are kept.
    left = {one.name for one in newest.parent.glob("*.tar.gz")}
    assert left == {built[0].name, built[2].name, built[3].name, newest.name}


def test_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(pack, "distribution", missing)
    with pytest.raises(SetupError, match="headgate is required, but not installed"):
        required_packages()


def test_editable_package_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "other-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (folder / "RECORD").write_text("other.pth,,\n")
    (folder / "direct_url.json").write_text('{"dir_info": {"editable": true}, "url": "file:///"}')
    (found,) = Distribution.discover(path=[str(tmp_path)])
    with pytest.raises(SetupError, match="files of the package other are unknown"):
        list(pack._files_of("other", found))
