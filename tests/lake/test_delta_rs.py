from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from headgate.lake.commit import Committer
from headgate.lake.delta_rs import DeltaRsCommitter
from tests.lake.staged import files_in, rows_in, staged

from .committer_contract import POINT_Y, CommitterContract, commit, numbers


class TestDeltaRsCommitter(CommitterContract):
    @pytest.fixture
    def committer(self, lake: Path) -> Committer:
        return DeltaRsCommitter(str(lake))


def test_files_are_committed_without_a_copy(tmp_path: Path) -> None:
    file = staged(tmp_path, "chess", numbers(1))
    commit(DeltaRsCommitter(str(tmp_path)), 0, file)
    assert DeltaTable(tmp_path / "chess").file_uris() == [str(tmp_path / "chess" / file.path)]
    assert files_in(tmp_path, "chess") == [file.path]


def test_commit_without_a_new_column_is_one_version(tmp_path: Path) -> None:
    committer = DeltaRsCommitter(str(tmp_path))
    rows = pa.table(
        {
            "a": pa.array([1], pa.int32()),
            "b": pa.array([[{"x": 1, "y": "b"}]], pa.list_(POINT_Y)),
            "c": pa.array([[("k", [1])]], pa.map_(pa.string(), pa.list_(pa.int32()))),
            "d": pa.array([1], pa.decimal128(20, 0)),
            "e": pa.array([1], pa.timestamp("us", "UTC")),
        }
    )
    versions = [commit(committer, number, staged(tmp_path, "t", rows)) for number in range(3)]
    assert versions == [0, 1, 2]


def table_with_feature(lake: Path, table: str, *features: str) -> None:
    """A table to which another writer has given a feature."""
    commit(DeltaRsCommitter(str(lake)), 0, staged(lake, table, numbers(1)))
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}
    log = lake / table / "_delta_log" / f"{1:020}.json"
    log.write_text(json.dumps({"protocol": protocol}))


@pytest.mark.parametrize("features", [("appendOnly",), ("invariants", "changeDataFeed"), ()])
def test_plain_features_can_be_written(tmp_path: Path, features: tuple[str, ...]) -> None:
    table_with_feature(tmp_path, "chess", *features)
    committer = DeltaRsCommitter(str(tmp_path))
    assert committer.can_write("chess")
    commit(committer, 1, staged(tmp_path, "chess", numbers(2)))
    assert rows_in(tmp_path, "chess", "n") == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize("feature", ["rowTracking", "clustering", "icebergCompatV2", "of-2030"])
def test_other_features_cannot(tmp_path: Path, feature: str) -> None:
    table_with_feature(tmp_path, "chess", "appendOnly", feature)
    assert not DeltaRsCommitter(str(tmp_path)).can_write("chess")


def test_missing_table_can_be_written(tmp_path: Path) -> None:
    assert DeltaRsCommitter(str(tmp_path)).can_write("chess")


def test_expired_entries_of_the_log_are_cleaned_up_every_hundred_versions(tmp_path: Path) -> None:
    committer = DeltaRsCommitter(str(tmp_path))
    for number in range(99):
        commit(committer, number, staged(tmp_path, "chess", numbers(number)))
    log = tmp_path / "chess" / "_delta_log"
    long_ago = time.time() - 40 * 86_400
    for entry in log.glob("0" * 18 + "[0-4]?.*"):
        os.utime(entry, (long_ago, long_ago))
    assert len(list(log.glob("0*.json"))) == 99
    for number in range(99, 229):
        commit(committer, number, staged(tmp_path, "chess", numbers(number)))
    assert len(list(log.glob("0*.json"))) < 200
    assert rows_in(tmp_path, "chess", "n") == [{"n": number} for number in range(229)]
