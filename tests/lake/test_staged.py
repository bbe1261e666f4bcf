from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headgate.lake.staged import NoteFile, StagedBatch, StagedBatchNote, StagedFile
from tests.lake.staged import staged

SCHEMA = pa.schema(
    [
        ("a", pa.decimal128(20, 0)),
        ("b", pa.list_(pa.struct([("x", pa.timestamp("us", "UTC"))]))),
        ("c", pa.map_(pa.string(), pa.binary())),
    ]
)


def test_file_round_trips_as_json() -> None:
    file = StagedFile(
        table="silver_chess",
        path="route=x/part-1.parquet",
        size=1 << 40,
        rows=3,
        statistics='{"numRecords": 3}',
        schema_bytes=SCHEMA.serialize().to_pybytes(),
        route="Chess \ud800 'é'",
        schema_ids=(1, 7),
        partition={"route": "Chess"},
        reasons={"null_value": 2},
    )
    back = StagedFile.from_json(file.to_json())
    assert back == file
    assert back.schema == SCHEMA


def test_file_with_only_required_fields_round_trips_as_json(tmp_path: Path) -> None:
    file = staged(tmp_path, "chess", {"n": [1]}, schema_ids=())
    assert StagedFile.from_json(file.to_json()) == file


def test_changed_file_is_not_what_was_read(tmp_path: Path) -> None:
    read = StagedFile.from_json(staged(tmp_path, "chess", {"n": [1]}).to_json())
    changed = replace(read, path="other.parquet")
    assert StagedFile.from_json(changed.to_json()) == changed != read


def a_batch(folder: Path) -> StagedBatch:
    files = [staged(folder, "chess", {"n": [1]}), staged(folder, "go\u2028\u0085", {"n": [2]})]
    return StagedBatch(7, 3, {"games": {"0": 1}}, {"games": {"0": 3}}, tuple(files), run=2)


@pytest.mark.parametrize("files", [0, 1, 2])
def test_note_has_a_batch_until_it_has_landed(tmp_path: Path, files: int) -> None:
    batch, note = a_batch(tmp_path), StagedBatchNote(str(tmp_path), "games")
    batch = replace(batch, files=batch.files[:files])
    assert note.read() is None
    note.write(batch)
    assert note.read() == note.under_way(None) == note.under_way(6) == batch
    assert note.under_way(7) is None
    note.clear()
    assert note.read() is None


@pytest.mark.parametrize("files", [0, 2])
def test_note_of_an_earlier_version_is_read(tmp_path: Path, files: int) -> None:
    batch = a_batch(tmp_path)
    batch = replace(batch, files=batch.files[:files])
    noted = {**vars(batch), "files": [file.to_json() for file in batch.files]}
    NoteFile(str(tmp_path), "games.json").write(json.dumps(noted).encode())
    assert StagedBatchNote(str(tmp_path), "games").under_way(6) == batch


def test_notes_that_are_written_at_the_same_time_do_not_mix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock of a pipeline is renewed by a thread of its own, also while a batch is noted."""
    batch, lock = NoteFile(str(tmp_path), "games.json"), NoteFile(str(tmp_path), "games.lock")
    move = os.replace
    renewed: list[bool] = []

    def renew_first(*paths: Any) -> None:
        if not renewed:
            renewed.append(True)
            lock.write(b"held")
        move(*paths)

    monkeypatch.setattr(os, "replace", renew_first)
    batch.write(b"a batch")
    assert (batch.read(), lock.read()) == (b"a batch", b"held")
    assert {path.name for path in (tmp_path / "_staged").iterdir()} == {"games.json", "games.lock"}
