"""Entries of a log: read one after the other, however many there are."""

from __future__ import annotations

import threading
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from headgate.lake import log
from headgate.lake.log import LogEntry, read_entries, vector_path, write_entry
from headgate.lake.storage import MAX_REQUESTS


def test_entries_are_read_in_order_without_those_that_are_gone(tmp_path: Path) -> None:
    for version in (0, 1, 3):
        write_entry(str(tmp_path), version, [{"commitInfo": {"timestamp": version}}])
    assert [entry.version for entry in read_entries(str(tmp_path), range(5))] == [0, 1, 3]


def test_only_a_few_entries_are_read_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    lock = threading.Lock()

    def entry(_: str, version: int) -> LogEntry:
        with lock:
            read.append(version)
        return LogEntry(version, ())

    monkeypatch.setattr(log.LogEntry, "read", entry)
    entries = read_entries("s3://bucket/t", range(1_000_000))
    assert [entry.version for entry in islice(entries, 3)] == [0, 1, 2]
    assert len(read) <= 3 + MAX_REQUESTS
    entries.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("vector", "path"),
    [
        (None, None),
        (
            {
                "storageType": "i",
                "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
            },
            None,
        ),
        (
            {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^"},
            "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin",
        ),
        ({"storageType": "p", "pathOrInlineDv": "s3://b/t/a%20b.bin"}, "s3://b/t/a b.bin"),
    ],
)
def test_files_of_deletion_vectors_are_known(
    vector: dict[str, Any] | None, path: str | None
) -> None:
    """The examples of Delta's specification."""
    assert vector_path(vector) == path
