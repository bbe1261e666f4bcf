from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headgate.lake.staged import NoteFile, StagedFile
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
