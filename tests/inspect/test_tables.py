from __future__ import annotations

import shutil
from pathlib import Path

from deltalake import DeltaTable

from headgate.inspect.status import read_status
from headgate.inspect.tables import read_tables
from headgate.quarantine.operations import replay_quarantine
from tests.inspect.quarantined_lake import make_quarantined_lake
from tests.inspect.small_lake import SmallLake


def test_tables_are_sorted_with_the_pipelines_own_last(lake: SmallLake) -> None:
    assert [each.table for each in read_tables(lake.pipeline)] == [
        "silver_backgammon",
        "silver_checkers",
        "silver_chess",
        "silver_go",
        "silver_reversi",
        "bronze_games",
        "quarantine",
    ]


def test_tables_have_the_rows_versions_and_columns_that_delta_has(lake: SmallLake) -> None:
    for each in read_tables(lake.pipeline):
        opened = DeltaTable(str(Path(lake.pipeline.lake, each.table)))
        assert each.rows == opened.count()
        assert each.version == opened.version()
        assert each.columns == len(opened.schema().fields)
        assert each.files == len(opened.file_uris())


def test_tables_and_status_count_the_same(lake: SmallLake) -> None:
    silver = [each for each in read_tables(lake.pipeline) if each.kind == "silver"]
    assert sum(each.rows for each in silver) == read_status(lake.pipeline).rows


def test_tables_tell_what_changed_last(lake: SmallLake) -> None:
    changes = {each.table: each.last_change for each in read_tables(lake.pipeline)}
    chess, go = changes["silver_chess"], changes["silver_go"]
    assert chess is not None
    assert go is not None
    assert (chess.text, chess.batch) == ("+ col_chess_game_2 string", 1)
    assert (go.change, go.batch) == ("CreateTable", 0)


def test_tables_name_their_route_unless_they_hold_many(lake: SmallLake) -> None:
    routes = {each.table: each.route for each in read_tables(lake.pipeline)}
    assert routes["silver_go"] == "go"
    assert routes["bronze_games"] is None


def test_a_table_that_is_gone_has_no_columns(empty_lake: SmallLake) -> None:
    empty_lake.register(1, versions=[1])
    empty_lake.land(10, bad_share=0)
    shutil.rmtree(Path(empty_lake.pipeline.lake, "silver_chess"))
    columns = {each.table: each.columns for each in read_tables(empty_lake.pipeline)}
    assert columns["silver_chess"] is None


def test_tables_count_what_was_replayed(tmp_path: Path) -> None:
    lake = make_quarantined_lake(tmp_path)
    before = {each.table: each for each in read_tables(lake.pipeline)}
    done = replay_quarantine(lake.pipeline)
    after = {each.table: each for each in read_tables(lake.pipeline)}
    for table, rows in done.landed.items():
        assert after[table].rows == before[table].rows + rows
        assert after[table].last_batch == before[table].last_batch
        assert after[table].version > before[table].version
