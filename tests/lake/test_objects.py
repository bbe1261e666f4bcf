"""Objects of a store that answers as some do: that an object is gone, or that it is undecided."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from obstore.store import GCSStore, ObjectStore, S3Store

from headgate.errors import StorageError
from headgate.lake import objects
from headgate.lake.log import write_entry
from headgate.lake.storage import delete_files
from headgate.lake.storage_errors import is_transient

CONFLICT = b"<Error><Code>ConditionalRequestConflict</Code></Error>"
DENIED = b"<Error><Code>AccessDenied</Code></Error>"


@dataclass
class Store:
    """What a store answers, and what it was asked."""

    port: int = 0
    puts: list[int] = field(default_factory=list)
    """Statuses of the next writes; then they succeed."""
    found: set[str] = field(default_factory=set)
    locked: set[str] = field(default_factory=set)
    """Names of objects that must not be deleted."""


@pytest.fixture
def store() -> Iterator[Store]:
    answers = Store()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def answer(self, status: int, content: bytes = b"") -> None:
            self.send_response(status)
            self.send_header("ETag", '"1"')
            self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        @property
        def name(self) -> str:
            return self.path.partition("?")[0].rpartition("/")[2].rpartition("%2F")[2]

        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status = answers.puts.pop(0) if answers.puts else 200
            self.answer(status, CONFLICT if status == 409 else b"")

        def do_HEAD(self) -> None:
            self.answer(200 if self.name in answers.found else 404)

        do_GET = do_HEAD

        def do_DELETE(self) -> None:
            name = self.name.replace("%2E", ".").replace("%2D", "-")
            if name in answers.locked:
                return self.answer(403, DENIED)
            self.answer(204 if name in answers.found else 404)
            answers.found.discard(name)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    answers.port = server.server_port
    Thread(target=server.serve_forever, daemon=True).start()
    yield answers
    server.shutdown()
    server.server_close()


def use(monkeypatch: pytest.MonkeyPatch, opened: ObjectStore) -> None:
    monkeypatch.setattr(objects, "_store", lambda *_: opened)


@pytest.fixture
def google(store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    key = {"gcs_base_url": f"http://127.0.0.1:{store.port}", "disable_oauth": True}
    empty = {"client_email": "", "private_key": "", "private_key_id": ""}
    opened = GCSStore(
        "bucket",
        config={"service_account_key": json.dumps({**key, **empty})},
        client_options={"allow_http": True},
    )
    use(monkeypatch, opened)
    return store


@pytest.fixture
def amazon(store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    opened = S3Store(
        "bucket",
        config={
            "access_key_id": "a",
            "secret_access_key": "b",
            "region": "us-east-1",
            "endpoint": f"http://127.0.0.1:{store.port}",
            "virtual_hosted_style_request": False,
        },
        client_options={"allow_http": True},
    )
    use(monkeypatch, opened)
    return store


def test_objects_that_are_gone_do_not_keep_others_from_deletion(google: Store) -> None:
    google.found = {"b", "c"}
    delete_files("gs://bucket/t", ["a", "b", "c", "d"])
    assert google.found == set()


def test_an_object_that_is_locked_does_not_keep_others_from_deletion(google: Store) -> None:
    google.found, google.locked = {"a", "b", "c"}, {"b"}
    with pytest.raises(StorageError) as caught:
        delete_files("gs://bucket/t", ["a", "b", "c", "d"])
    assert caught.value.code == "storage-refused"
    assert google.found == {"b"}


def test_a_write_that_the_store_has_not_decided_is_tried_again(amazon: Store) -> None:
    amazon.puts = [409]
    with pytest.raises(StorageError) as caught:
        write_entry("s3://bucket/t", 5, [{"commitInfo": {}}])
    assert is_transient("s3://bucket/t", caught.value)
    assert write_entry("s3://bucket/t", 5, [{"commitInfo": {}}]) is not None


def test_an_object_that_exists_is_not_written(amazon: Store) -> None:
    amazon.puts, amazon.found = [412], {f"{5:020d}.json"}
    assert objects.Objects().create(f"s3://bucket/t/_delta_log/{5:020d}.json", b"{}") is None


def test_a_file_that_cannot_be_deleted_does_not_keep_others(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "last").write_text("")
    with pytest.raises(OSError, match="folder"):
        delete_files(str(tmp_path), ["gone", "folder", "last"])
    assert not (tmp_path / "last").exists()
