from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Headgate
from tests.inspect.small_lake import SmallLake


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmallLake:
    monkeypatch.chdir(tmp_path)
    lake = SmallLake(tmp_path, refused=["silver_go"])
    lake.register(2, versions=[1])
    lake.land(50, bad_share=0)
    return lake


def test_pending_files_are_listed_with_the_reason(headgate: Headgate, lake: SmallLake) -> None:
    printed = headgate("pending", "list")
    assert printed.code == 0
    assert "silver_go" in printed.out
    assert "cannot be written" in printed.out
    assert "headgate run" in printed.out
    (file,) = json.loads(headgate("pending", "list", "--json").out)["data"]["files"]
    assert (file["table"], file["batch"], file["exists"]) == ("silver_go", 0, True)


def test_pending_files_are_dropped(headgate: Headgate, lake: SmallLake) -> None:
    refused = headgate("pending", "drop", "silver_go")
    assert (refused.code, "--yes" in refused.err) == (2, True)
    printed = headgate("pending", "drop", "silver_go", "--yes")
    assert (printed.code, printed.out.split(" with")[0]) == (0, "Dropped 1 file")
    assert headgate("pending", "list").out == "No table is pending\n"
    status = headgate("status").out
    assert "lost" in status
    assert "dropped: " in status


def test_unknown_table_is_refused_with_those_that_wait(headgate: Headgate, lake: SmallLake) -> None:
    printed = headgate("pending", "drop", "games.yaml", "silver_chess", "--yes")
    assert printed.code == 1
    assert "silver_go" in printed.err
    assert headgate("pending", "drop", "--yes").code == 2
