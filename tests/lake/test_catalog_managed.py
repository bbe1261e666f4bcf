"""Tables of which only a catalog knows the newest version are refused with a code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deltalake import write_deltalake

from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.lake.snapshot import Snapshot
from headgate.lake.tables import CatalogManaged, NotWritable
from tests.lake.committer_contract import APP, commit, numbers
from tests.lake.staged import staged


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    write_deltalake(tmp_path / "t", numbers(1))
    features = ["catalogManaged", "inCommitTimestamp", "vacuumProtocolCheck"]
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["catalogManaged", "vacuumProtocolCheck"],
        "writerFeatures": features,
    }
    entry = tmp_path / "t" / "_delta_log" / f"{1:020}.json"
    info = {"commitInfo": {"inCommitTimestamp": 1, "timestamp": 1, "operation": "UPGRADE"}}
    entry.write_text("\n".join(map(json.dumps, [info, {"protocol": protocol}])))
    return tmp_path


def test_catalog_managed_table_is_not_read(lake: Path) -> None:
    with pytest.raises(CatalogManaged) as caught:
        Snapshot.open(str(lake), "t")
    assert caught.value.code == "table-catalog-managed"
    assert "table t is managed by a catalog" in str(caught.value)


def test_catalog_managed_table_is_not_written(lake: Path) -> None:
    committer = DeltaRsCommitter(str(lake))
    assert not committer.can_write("t")
    for write in (
        lambda: committer.state("t", APP),
        lambda: commit(committer, 0, staged(lake, "t", numbers(2))),
        lambda: committer.compact("t", 1 << 20),
    ):
        with pytest.raises(NotWritable):
            write()
    assert not (lake / "t" / "_delta_log" / f"{2:020}.json").exists()
