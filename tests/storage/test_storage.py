"""Files by URL: the same on a local disk and in an object store."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import obstore
import pyarrow as pa
import pytest

from headgate.config import Secret
from headgate.config.storage import declare_storage
from headgate.errors import StorageError
from headgate.lab.object_store import ObjectStore
from headgate.lake import objects
from headgate.lake import storage as files
from headgate.lake.ledger_snapshot import LedgerSnapshot
from headgate.lake.parquet import ParquetRows, write_parquet
from headgate.lake.storage_errors import storage_error
from tests.storage.simulated import require_real


@pytest.fixture(params=["disk", "store"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A folder on disk or in the store, which does not exist yet."""
    if request.param == "disk":
        return str(tmp_path / "lake")
    return cast("Callable[[], str]", request.getfixturevalue("new_lake"))()


def test_file_is_written_replaced_and_deleted(folder: str) -> None:
    url = f"{folder}/_staged/a.json"
    assert not files.has_file(url)
    with pytest.raises(FileNotFoundError):
        files.read_file(url)
    for content in (b"one", b"", b"three"):
        files.write_file(url, content)
        assert files.read_file(url) == content
    assert files.has_file(url)
    files.delete_file(url)
    files.delete_file(url)
    assert not files.has_file(url)


def test_file_is_created_once(folder: str) -> None:
    files.write_file(f"{folder}/other", b"")
    url = f"{folder}/00.json"
    identity = files.create_file(url, b"first")
    assert identity is not None
    assert files.create_file(url, b"second") is None
    assert files.read_file(url) == b"first"
    assert files.identify(url) == identity
    assert files.identify_from(url, f"{folder}/01.json") == {url: identity}
    files.create_file(f"{folder}/01.json", b"next")
    assert len(files.identify_from(url, f"{folder}/01.json")) == 2
    files.write_file(url, b"replaced")
    assert files.identify(url) != identity
    assert files.identify(f"{folder}/02.json") is None


def test_files_and_folders_are_listed(folder: str) -> None:
    assert files.list_folders(folder) == []
    assert files.list_files(folder) == []
    for path in ("t/part-1.parquet", "t/x=1/part-2.parquet", "t/other", "u/_delta_log/0.json"):
        files.write_file(f"{folder}/{path}", b"")
    assert sorted(files.list_folders(folder)) == ["t", "u"]
    assert sorted(files.list_files(f"{folder}/t", "part-")) == [
        "part-1.parquet",
        "x=1/part-2.parquet",
    ]
    assert files.is_folder(f"{folder}/u/_delta_log")
    assert not files.is_folder(f"{folder}/u/_delta")


def test_file_is_copied_and_linked(folder: str) -> None:
    files.write_file(f"{folder}/t/a", b"content")
    files.copy_file(f"{folder}/t/a", f"{folder}/u/b")
    files.link_file(f"{folder}/t/a", f"{folder}/u/c")
    files.link_file(f"{folder}/t/a", f"{folder}/u/c")
    files.delete_file(f"{folder}/t/a")
    assert [files.read_file(f"{folder}/u/{name}") for name in "bc"] == [b"content"] * 2
    with pytest.raises(FileNotFoundError):
        files.copy_file(f"{folder}/t/a", f"{folder}/u/d")


def test_folder_is_renamed(folder: str) -> None:
    files.write_file(f"{folder}/old/offsets/0", b"0")
    files.write_file(f"{folder}/old/metadata", b"m")
    files.move_folder(f"{folder}/old", f"{folder}/new")
    assert sorted(files.list_files(f"{folder}/new")) == ["metadata", "offsets/0"]
    assert files.list_files(f"{folder}/old") == []


def test_rows_are_written_and_read(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"n": list(range(50_000)), "name": [f"name {n}" for n in range(50_000)]})
    staged = write_parquet(folder, "t", "part-1.parquet", rows)
    url = f"{folder}/t/part-1.parquet"
    assert staged.size == len(files.read_file(url))
    assert ParquetRows(url).read() == rows
    monkeypatch.setattr(objects, "_WHOLE", 1)  # in parts
    assert ParquetRows(url).read(["name"]) == rows.select(["name"])


def test_failed_write_leaves_no_object(new_lake: Callable[[], str]) -> None:
    url = f"{new_lake()}/t/part-1.parquet"
    with suppress(RuntimeError), files.open_output(url) as file:
        file.write(b"half")
        raise RuntimeError
    assert not files.has_file(url)


def test_store_with_conditional_puts_is_safe(new_lake: Callable[[], str]) -> None:
    lake = new_lake()
    files.probe(lake)
    assert files.list_files(lake) == []


def test_store_without_conditional_puts_is_refused(
    new_lake: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    put = obstore.put

    def put_anyway(store: Any, path: str, content: bytes, mode: str | None = None) -> Any:
        return put(store, path, content)

    monkeypatch.setattr(obstore, "put", put_anyway)
    with pytest.raises(StorageError) as refused:
        files.probe(new_lake())
    assert refused.value.code == "storage-unsafe"


@pytest.mark.parametrize("took", ["403.7ms", "7.403s", "401.2µs"])
def test_time_that_a_request_took_is_not_its_status(took: str) -> None:
    text = f"Error performing GET http://host:1/b in {took} - status code: 404: NoSuchBucket"
    assert storage_error("s3://b/lake", OSError(text)).code == "bucket-missing"
    refused = OSError(
        f"Error performing GET http://host:1/b in {took} - status code: 403 Forbidden"
    )
    assert storage_error("s3://b/lake", refused).code == "storage-refused"


class TestFaults:
    """Errors say what to check, and nothing that is secret."""

    def probe(self, store: ObjectStore, url: str = "s3://lake/faults", **changed: object) -> str:
        declare_storage(store.settings.model_copy(update=changed), url)
        with pytest.raises(StorageError) as failed:
            files.probe(url)
        shown = str(failed.value)
        for secret in (store.settings.access_key, store.settings.secret_key):
            assert secret is not None
            assert secret.resolve() not in shown
        assert len(shown) < 700
        return failed.value.code

    def test_ledger_that_cannot_be_read(self, storage: ObjectStore) -> None:
        declare_storage(storage.settings, "s3://nowhere/lake")
        with pytest.raises(StorageError) as failed:
            LedgerSnapshot.open("s3://nowhere/lake", "ledger", "games")
        assert failed.value.code == "bucket-missing"

    def test_wrong_key(self, storage: ObjectStore, tmp_path: Path) -> None:
        require_real(storage)  # the simulated one takes any key
        (tmp_path / "key").write_text("wrong-key-of-the-user")
        wrong = Secret("file", str(tmp_path / "key"))
        assert self.probe(storage, secret_key=wrong) == "storage-refused"

    def test_missing_bucket(self, storage: ObjectStore) -> None:
        assert self.probe(storage, "s3://nowhere/lake") == "bucket-missing"

    def test_wrong_endpoint(self, storage: ObjectStore) -> None:
        closed, soon = "http://127.0.0.1:9", {"connect_timeout": "1s"}
        assert self.probe(storage, endpoint=closed, options=soon) == "storage-unreachable"
