from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import Mock

import pytest

from headgate.config import Files, Size
from headgate.errors import SourceError
from headgate.sources.files import LandedFile, batch_of, list_files, read_local


def names(folder: Path, **more: object) -> list[str]:
    files = list_files(Mock(), Files(path=str(folder), **more))  # type: ignore[arg-type]
    return [str(Path(file.path).relative_to(folder)) for file in files]


def put(folder: Path, *paths: str) -> None:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(b"x")


def test_files_are_listed_by_the_time_in_their_path(tmp_path: Path) -> None:
    late = "shop_orders/2026/01/02/03/05/a.avro"
    early = "shop_lines/2026/01/02/03/04/b.avro"
    put(tmp_path, late, early)
    assert names(tmp_path) == [early, late]


def test_hidden_and_temporary_files_are_skipped(tmp_path: Path) -> None:
    put(tmp_path, "a.avro", ".b.avro", "_c.avro", "d.tmp", "_delta_log/e.json", "f.avro.part")
    assert names(tmp_path) == ["a.avro"]


def test_files_older_than_start_are_skipped(tmp_path: Path) -> None:
    put(tmp_path, "t/2025/12/31/23/59/a.avro", "t/2026/01/01/00/00/b.avro", "c.avro")
    start = datetime(2026, 1, 1, tzinfo=UTC)
    assert names(tmp_path, start=start) == ["t/2026/01/01/00/00/b.avro", "c.avro"]


def test_an_invalid_time_in_a_path_is_ignored(tmp_path: Path) -> None:
    put(tmp_path, "t/2026/99/99/99/99/a.avro")
    assert names(tmp_path, start=datetime(2026, 1, 1, tzinfo=UTC)) == ["t/2026/99/99/99/99/a.avro"]


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no folder"):
        names(tmp_path / "nowhere")


def test_a_batch_is_limited_by_files_and_by_bytes() -> None:
    files = [LandedFile(str(number), 10, 0) for number in range(5)]
    few = Files(path="/x", files_per_batch=3)
    assert batch_of(files, few) == files[:3]
    small = Files(path="/x", bytes_per_batch=Size.parse("25 B"))
    assert batch_of(files, small) == files[:2]
    tiny = Files(path="/x", bytes_per_batch=Size.parse("1 B"))
    assert batch_of(files, tiny) == files[:1]


def test_a_file_that_has_grown_is_listed_as_a_different_one(tmp_path: Path) -> None:
    put(tmp_path, "a.json")
    (listed,) = list_files(Mock(), Files(path=str(tmp_path)))
    content, read = read_local(listed.path)
    assert (content, read) == (b"x", listed)
    (tmp_path / "a.json").write_bytes(b"xy")
    assert list_files(Mock(), Files(path=str(tmp_path))) != [listed]
