from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from headgate.lake.choose_committer import AutoCommitter
from headgate.lake.commit import (
    Commit,
    Committer,
    Engine,
    Mark,
    MergeCommit,
    MergeCounts,
    TableState,
    Work,
)
from headgate.lake.compact import Compacted
from headgate.lake.definition import TableDefinition
from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.lake.snapshot import Snapshot

from .committer_contract import APP, CommitterContract, numbers
from .test_delta_rs import table_with_feature


class RecordingCommitter:
    """A committer that only records its calls."""

    lake = "/"

    def __init__(self) -> None:
        self.calls: list[str] = []

    def engine(self, table: str | Snapshot, work: Work = "merge") -> Engine:
        return "spark"

    def state(self, table: str, app: str) -> TableState | None:
        self.calls.append(f"state of {table}")
        return None

    def schema_at(self, table: str, version: int) -> pa.Schema:
        raise AssertionError

    def definition(self, table: str, version: int) -> TableDefinition | None:
        return None

    def can_rewrite(self, table: str, up_to: int) -> bool:
        raise AssertionError

    def commit(self, commit: Commit) -> int:
        self.calls.append(f"commit to {commit.table}")
        return 7

    def compact(self, table: str, size: int, fewest: int = 2) -> Compacted:
        raise NotImplementedError

    def merge(self, merge: MergeCommit) -> MergeCounts:
        raise AssertionError


class TestAutoCommitter(CommitterContract):
    @pytest.fixture
    def committer(self, lake: Path) -> Committer:
        return AutoCommitter(DeltaRsCommitter(str(lake)), RecordingCommitter())


def test_table_that_delta_rs_cannot_write_is_committed_by_spark(tmp_path: Path) -> None:
    table_with_feature(tmp_path, "chess", "rowTracking")
    table_with_feature(tmp_path, "go", "appendOnly")
    spark = RecordingCommitter()
    committer = AutoCommitter(DeltaRsCommitter(str(tmp_path)), spark)
    assert committer.state("go", APP) is not None
    assert committer.state("chess", APP) is None
    assert committer.commit(Commit("chess", numbers().schema, (), (Mark(APP, 0),))) == 7
    assert spark.calls == ["state of chess", "commit to chess"]
    assert [committer.engine(table) for table in ("go", "chess", "new")] == [
        "delta-rs",
        "spark",
        "delta-rs",
    ]
