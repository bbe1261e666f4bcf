"""`headgate maintain` and `headgate remove`: what they show, and what they do."""

from __future__ import annotations

import json
import os
from pathlib import Path
from uuid import uuid4

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from tests.cli.conftest import Headgate
from tests.inspect.small_lake import SmallLake


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmallLake:
    monkeypatch.chdir(tmp_path)
    lake = SmallLake(tmp_path)
    lake.register(2, versions=[1])
    for _ in range(3):
        lake.land(50, bad_share=0)
    return lake


def test_maintenance_is_shown_then_done(headgate: Headgate, lake: SmallLake) -> None:
    planned = headgate("maintain", "games.yaml", "silver_*", "--dry-run")
    assert planned.code == 0
    assert "silver_chess: 3 files of" in planned.out
    assert "2 tables of 2: would combine 6 files into 2" in planned.out
    (chess, _) = json.loads(headgate("maintain", "silver_*", "--dry-run", "--json").out)["data"][
        "tables"
    ]
    assert chess["table"] == "silver_chess"
    assert len(chess["compacted"]["groups"][0]) == 3
    done = headgate("maintain", "silver_*", "--for", "1m")
    assert "combined 6 files into 2" in done.out
    assert headgate("maintain", "silver_*").out.startswith("Nothing to do in 2 tables\n")
    assert headgate("maintain", "--for", "soon").code == 2


def test_what_is_deleted_and_what_is_left_is_shown(headgate: Headgate, lake: SmallLake) -> None:
    folder = lake.folder / "lake" / "silver_chess"
    orphan, unknown = (f"part-{end}.parquet" for end in (uuid4(), f"0123abcd-000000001-{uuid4()}"))
    for name in (orphan, unknown):
        (folder / name).write_bytes(b"x")
        os.utime(folder / name, (0, 0))
    planned = headgate("maintain", "silver_chess", "--dry-run").out
    assert "1 file deleted (1 byte): 1 staged file" in planned
    assert f"left alone: {unknown} (no ledger of this lake knows its writer)" in planned
    printed = json.loads(headgate("maintain", "silver_chess", "--json").out)["data"]["tables"]
    assert printed[0]["deletions"][0]["path"] == orphan
    assert "more than a day ago" in printed[0]["deletions"][0]["why"]
    assert [left["name"] for left in printed[0]["left"]] == [unknown]


def test_what_stays_is_listed(headgate: Headgate, lake: SmallLake) -> None:
    table = DeltaTable(lake.folder / "lake" / "silver_chess")
    marked = CommitProperties(app_transactions=[Transaction("headgate:other", 1)])
    write_deltalake(table, table.to_pyarrow_table(), mode="append", commit_properties=marked)
    planned = headgate("remove", "--dry-run").out
    assert "Stays: table silver_chess: pipeline other writes to it, too" in planned
    found = json.loads(headgate("remove", "--dry-run", "--json").out)["data"]
    assert [one["name"] for one in found["left"]] == ["silver_chess"]
    assert "silver_chess" not in [one["name"] for one in found["owned"]]


def test_a_pipeline_is_listed_then_removed(headgate: Headgate, lake: SmallLake) -> None:
    refused = headgate("remove")
    assert (refused.code, "--yes" in refused.err) == (2, True)
    planned = headgate("remove", "--dry-run")
    assert planned.code == 0
    assert "4 tables (" in planned.out or "3 tables (" in planned.out
    assert "silver_chess" in planned.out
    assert "Nothing was removed" in planned.out
    found = json.loads(headgate("remove", "--tables", "--dry-run", "--json").out)["data"]
    assert found["removed"] == 0
    assert {"silver_chess", "silver_go", "ledger"} <= {one["name"] for one in found["owned"]}
    removed = headgate("remove", "games.yaml", "--yes")
    assert removed.code == 0
    assert "Removed games" in removed.out
    assert "Nothing has landed yet" in headgate("status").out
    assert "owns nothing" in headgate("remove", "--yes").out
