"""`verify` and `doctor` after others have changed landed tables."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake

from tests.cli.conftest import Headgate, Printed
from tests.cli.snapshot import Snapshot
from tests.inspect.small_lake import SmallLake, make_small_lake


@pytest.fixture
def games(tmp_path: Path) -> SmallLake:
    """In the folder that commands run in."""
    return make_small_lake(tmp_path)


def table(lake: SmallLake, name: str = "silver_chess") -> DeltaTable:
    return DeltaTable(f"{lake.pipeline.lake}/{name}")


def delete(lake: SmallLake, rows: int = 3) -> None:
    offsets = sorted(table(lake).to_pyarrow_table()["_offset"].to_pylist())
    table(lake).delete(f"_offset <= {offsets[rows - 1]}")


def without_times(printed: Printed) -> str:
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "<time>", printed.out)


def test_verify_of_landed_tables(headgate: Headgate, games: SmallLake) -> None:
    printed = headgate("verify", "games.yaml")
    assert (printed.code, printed.err) == (0, "")
    assert re.fullmatch(r"[\d,]+ landed rows: all in \d+ tables\n", printed.out)


def test_verify_of_rows_that_others_deleted(
    headgate: Headgate, snapshot: Snapshot, games: SmallLake
) -> None:
    delete(games)
    printed = headgate("verify", "games.yaml", "--table", "chess")
    assert (printed.code, printed.err) == (1, "")
    snapshot.check(without_times(printed))


def test_verify_of_rows_that_others_deleted_before_the_last_batch(
    headgate: Headgate, snapshot: Snapshot, games: SmallLake
) -> None:
    delete(games)
    games.land(100, bad_share=0)
    printed = headgate("verify", "games.yaml", "--table", "silver_chess")
    assert (printed.code, printed.err) == (1, "")
    snapshot.check(without_times(printed))


def test_verify_of_a_table_that_is_gone(
    headgate: Headgate, snapshot: Snapshot, games: SmallLake
) -> None:
    shutil.rmtree(f"{games.pipeline.lake}/silver_chess")
    printed = headgate("verify", "games.yaml", "--table", "silver_chess")
    assert (printed.code, printed.err) == (1, "")
    snapshot.check(printed.out)


def test_verify_of_a_table_that_somebody_created_again(
    headgate: Headgate, games: SmallLake
) -> None:
    few = table(games).to_pyarrow_table().slice(0, 2)
    shutil.rmtree(f"{games.pipeline.lake}/silver_chess")
    write_deltalake(f"{games.pipeline.lake}/silver_chess", few)
    for _ in range(2):
        games.land(60, bad_share=0)
    printed = headgate("verify", "--table", "silver_chess")
    assert printed.code == 1
    assert "63 rows are missing" in printed.out
    assert "UTC: somebody created the table again" in printed.out
    assert "RESTORE TABLE" not in printed.out


def test_verify_of_landed_tables_as_json(headgate: Headgate, games: SmallLake) -> None:
    delete(games)
    printed = headgate("verify", "--json")
    answer = json.loads(printed.out)
    assert (printed.code, answer["ok"]) == (1, False)
    assert answer["errors"] == [{"table": "silver_chess", "message": "3 rows are missing"}]
    landed = {each["table"]: each for each in answer["data"]["landed"]}
    assert landed.keys() >= {"silver_chess", "bronze_games", "quarantine"}
    assert [name for name, each in landed.items() if not each["ok"]] == ["silver_chess"]
    (commit,) = landed["silver_chess"]["commits"]
    assert (commit["operation"], commit["removed"] - commit["added"]) == ("DELETE", 3)


def test_verify_of_a_table_that_is_unknown(headgate: Headgate, games: SmallLake) -> None:
    printed = headgate("verify", "--table", "silver_ches")
    assert printed.code == 1
    assert "hint: did you mean `silver_chess`?" in printed.err


def test_doctor_says_that_rows_differ(headgate: Headgate, games: SmallLake) -> None:
    delete(games)
    checks = {each["name"]: each for each in doctor(headgate)}
    assert checks["tables"] == {
        "name": "tables",
        "state": "warn",
        "detail": "1 with other rows than have landed, such as silver_chess: 3 rows are missing",
        "fix": "headgate verify lists the commits that explain it",
    }


def test_doctor_says_first_that_a_table_is_gone(headgate: Headgate, games: SmallLake) -> None:
    delete(games)
    shutil.rmtree(f"{games.pipeline.lake}/bronze_games")
    checks = {each["name"]: each for each in doctor(headgate)}
    assert checks["tables"]["state"] == "fail"
    assert checks["tables"]["detail"] == "1 older than the ledger or gone, such as bronze_games"


def doctor(headgate: Headgate) -> list[dict[str, str]]:
    checks: list[dict[str, str]] = json.loads(headgate("doctor", "games.yaml", "--json").out)[
        "data"
    ]
    return checks
