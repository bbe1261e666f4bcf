from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from headgate.errors import LandingError
from headgate.inspect.schema import read_table_schema
from tests.inspect.small_lake import SmallLake


def test_schema_is_found_by_table_and_by_route(lake: SmallLake) -> None:
    assert read_table_schema(lake.pipeline, "silver_chess") == read_table_schema(
        lake.pipeline, "chess"
    )


def test_schema_has_columns_and_their_types(lake: SmallLake) -> None:
    schema = read_table_schema(lake.pipeline, "chess")
    columns = {each.name: (each.type, each.origin) for each in schema.columns}
    assert columns["event_timestamp"] == ("timestamp", False)
    assert columns["col_chess_game_2"] == ("string", False)
    assert columns["_offset"] == ("long", True)


def test_schema_has_its_history_oldest_first(lake: SmallLake) -> None:
    made, added = read_table_schema(lake.pipeline, "chess").history
    assert (made.batch, made.change, made.schema_ids) == (0, "CreateTable", (1, 2))
    assert (added.batch, added.change, added.column) == (1, "AddColumn", "col_chess_game_2")
    assert added.outcome == "applied"
    assert added.schema_ids == (9,)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("ches", "did you mean `silver_chess`?"),
        ("silver_goo", "did you mean `silver_go`?"),
        ("x" * 40, "headgate tables lists them"),
    ],
)
def test_schema_of_an_unknown_table_suggests_one(lake: SmallLake, name: str, hint: str) -> None:
    with pytest.raises(LandingError) as caught:
        read_table_schema(lake.pipeline, name)
    assert (caught.value.code, caught.value.hint) == ("table-unknown", hint)


def test_schema_of_a_table_that_is_gone_is_an_error(empty_lake: SmallLake) -> None:
    empty_lake.register(1, versions=[1])
    empty_lake.land(10, bad_share=0)
    shutil.rmtree(Path(empty_lake.pipeline.lake, "silver_chess"))
    with pytest.raises(LandingError) as caught:
        read_table_schema(empty_lake.pipeline, "chess")
    assert caught.value.code == "lake-unreadable"
