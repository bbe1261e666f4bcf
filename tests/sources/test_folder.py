from __future__ import annotations

import os
import socket
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import Mock

import pytest

from headgate.config import Files
from headgate.errors import SourceError
from headgate.sources.folder import SkippedFile, list_files, read_local


def names(folder: Path, **more: object) -> list[str]:
    found = list_files(Mock(), Files(path=str(folder), **more))  # type: ignore[arg-type]
    return [str(Path(file.path).relative_to(folder)) for file in found.files]


def skipped(folder: Path) -> dict[str, str]:
    found = list_files(Mock(), Files(path=str(folder))).skipped
    return {str(Path(path).relative_to(folder)): why for path, why in found.items()}


def read(folder: Path, path: str) -> bytes | None:
    return read_local(str(folder), str(folder / path), 1_000)[0]


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


def test_a_file_that_has_grown_is_listed_as_a_different_one(tmp_path: Path) -> None:
    put(tmp_path, "a.json")
    (listed,) = list_files(Mock(), Files(path=str(tmp_path))).files
    assert read_local(str(tmp_path), listed.path, 1_000) == (b"x", listed)
    (tmp_path / "a.json").write_bytes(b"xy")
    assert list_files(Mock(), Files(path=str(tmp_path))).files != [listed]


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"12345")
    content, file = read_local(str(tmp_path), str(tmp_path / "a.json"), 4)
    assert (content, file.size) == (None, 5)


def test_links_are_skipped(tmp_path: Path) -> None:
    landing, elsewhere = tmp_path / "landing", tmp_path / "elsewhere"
    put(landing, "a.avro")
    put(elsewhere, "secret.avro")
    (landing / "file.avro").symlink_to(elsewhere / "secret.avro")
    (landing / "inside.avro").symlink_to(landing / "a.avro")
    (landing / "folder").symlink_to(elsewhere)
    (landing / "loop").symlink_to(landing)
    (landing / "nowhere").symlink_to(tmp_path / "missing")
    assert names(landing) == ["a.avro"]
    assert skipped(landing) == dict.fromkeys(
        ["file.avro", "inside.avro", "folder", "loop", "nowhere"], "it is a link"
    )


def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    put(tmp_path / "real", "a/b.avro")
    (tmp_path / "landing").symlink_to(tmp_path / "real")
    assert names(tmp_path / "landing") == ["a/b.avro"]
    assert read(tmp_path / "landing", "a/b.avro") == b"x"


def test_special_files_are_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "a.avro")
    os.mkfifo(tmp_path / "fifo.avro")
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket.avro")
    assert names(tmp_path) == ["a.avro"]
    assert skipped(tmp_path) == dict.fromkeys(
        ["fifo.avro", "socket.avro"], "it is not a regular file"
    )


def test_hidden_links_are_not_reported(tmp_path: Path) -> None:
    (tmp_path / ".hidden").symlink_to("/etc/passwd")
    assert skipped(tmp_path) == {}


def test_folder_that_cannot_be_read_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "closed/a.avro", "open/b.avro")
    scandir = os.scandir

    def refuse(folder: str) -> object:
        if str(folder).endswith("closed"):
            raise PermissionError(13, "Permission denied", folder)
        return scandir(folder)

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", refuse)
        assert names(tmp_path) == ["open/b.avro"]
        assert skipped(tmp_path) == {"closed": "Permission denied"}
    assert names(tmp_path) == ["closed/a.avro", "open/b.avro"]


def test_file_that_became_a_link_is_not_read(tmp_path: Path) -> None:
    put(tmp_path, "landing/a.avro", "secret")
    (tmp_path / "landing" / "a.avro").unlink()
    (tmp_path / "landing" / "a.avro").symlink_to(tmp_path / "secret")
    with pytest.raises(SkippedFile, match="it is a link"):
        read(tmp_path / "landing", "a.avro")


def test_file_whose_folder_became_a_link_is_not_read(tmp_path: Path) -> None:
    put(tmp_path, "landing/day/a.avro", "elsewhere/a.avro")
    (tmp_path / "landing" / "day").rename(tmp_path / "gone")
    (tmp_path / "landing" / "day").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SkippedFile, match="a folder of its path is a link"):
        read(tmp_path / "landing", "day/a.avro")


def test_fifo_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.avro")
    with pytest.raises(SkippedFile, match="not a regular file"):
        read(tmp_path, "a.avro")


@pytest.mark.parametrize("path", ["../secret", "day/../../secret", "/secret", "", "day//../a"])
def test_file_outside_of_the_folder_is_not_read(tmp_path: Path, path: str) -> None:
    put(tmp_path, "landing/day/a", "secret")
    landing = tmp_path / "landing"
    with pytest.raises(SkippedFile, match="outside"):
        read_local(str(landing), f"{landing}/{path}", 1_000)
    with pytest.raises(SkippedFile, match="outside"):
        read_local(str(landing), str(tmp_path / "secret"), 1_000)


def test_file_that_has_vanished_is_skipped(tmp_path: Path) -> None:
    with pytest.raises(SkippedFile, match="no longer exists"):
        read(tmp_path, "a.avro")


def test_file_whose_name_is_not_utf8_is_skipped(tmp_path: Path) -> None:
    put(tmp_path, "a.avro")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.avro")).write_bytes(b"x")
    assert names(tmp_path) == ["a.avro"]
    assert skipped(tmp_path) == {"?.avro": "its name is not UTF-8"}
