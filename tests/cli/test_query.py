from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Headgate
from tests.inspect.small_lake import SmallLake


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmallLake:
    monkeypatch.chdir(tmp_path)
    lake = SmallLake(tmp_path)
    lake.register(1, versions=[1])
    lake.land(20, bad_share=0)
    return lake


def test_pull_query_prints_its_rows(headgate: Headgate, lake: SmallLake) -> None:
    printed = headgate("query", "SELECT count(*) AS n FROM silver_chess")
    assert (printed.code, json.loads(printed.out)) == (0, {"n": 20})


def test_push_query_prints_a_line_for_every_change(headgate: Headgate, lake: SmallLake) -> None:
    sql = "SELECT user_name FROM CHESS EMIT CHANGES LIMIT 12;"
    changes = list(map(json.loads, headgate("query", sql).out.splitlines()))
    assert [change["op"] for change in changes] == ["insert"] * 12
    lake.land(5, bad_share=0)
    rest = headgate("query", sql.replace("12", "13"), "--token", changes[-1]["token"])
    assert rest.code == 0
    more = list(map(json.loads, rest.out.splitlines()))
    assert {change["version"] for change in more} == {0, 1}
    tokens = [change["token"] for change in (*changes, *more)]
    assert len(set(tokens)) == len(tokens) == 25


def test_wrong_query_is_located(headgate: Headgate, lake: SmallLake) -> None:
    printed = headgate("query", "SELECT user_nam FROM chess EMIT CHANGES")
    assert printed.code == 1
    assert "user_name" in printed.err
    assert "query:1:8" in printed.err
    assert "silver_chess" in headgate("query", "SELECT * FROM ches").err
    assert headgate("query").code == 2
