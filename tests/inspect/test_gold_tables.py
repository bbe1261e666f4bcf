"""Derived tables among the others: how they stand, and that nobody takes them for landed ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.errors import LandingError
from headgate.inspect.graph import NodeKind, read_graph
from headgate.inspect.schema import read_table_schema
from headgate.inspect.status import read_status
from headgate.inspect.tables import TableKind, kind_of, landed_tables, read_tables
from tests.inspect.change_lake import make_shop_lake
from tests.inspect.gold_declared import GAMES, SHOP, declare_gold
from tests.inspect.gold_lake import derive, record
from tests.inspect.small_lake import SmallLake, make_small_lake

CHESS = "gold_chess_player_agg"
PLAYERS = "gold_{route}_player_agg"


@pytest.fixture
def lake(tmp_path: Path) -> SmallLake:
    """With one derived table by route, and one of all routes."""
    made = make_small_lake(tmp_path)
    declare_gold(made.file, GAMES)
    derive(made.pipeline, PLAYERS, CHESS)
    derive(made.pipeline, "routes", "routes", "silver_chess")
    record(made.pipeline, CHESS, rows=2)
    record(made.pipeline, "routes", rows=7)
    return made


def test_status_tells_when_derived_tables_followed(lake: SmallLake) -> None:
    record(lake.pipeline, CHESS, rows=1)
    chess, routes = read_status(lake.pipeline).derived
    assert (chess.table, chess.rows_last, chess.table_version, chess.error) == (CHESS, 1, 0, None)
    assert (routes.table, routes.rows_last) == ("routes", 7)
    assert chess.at is not None
    assert routes.at is not None
    assert chess.at > routes.at


def test_status_tells_what_hindered_a_derived_table(lake: SmallLake) -> None:
    before = read_status(lake.pipeline).derived
    record(lake.pipeline, CHESS, error="no room")
    record(lake.pipeline, "unified_gold", error='it says "no"')
    chess, routes, union = read_status(lake.pipeline).derived
    assert (chess.error, chess.at, chess.rows_last) == ("no room", before[0].at, 2)
    assert routes == before[1]
    assert (union.error, union.at, union.rows_last) == ('it says "no"', None, None)


def test_status_forgets_an_error_once_the_table_has_followed(lake: SmallLake) -> None:
    record(lake.pipeline, CHESS, error="no room")
    record(lake.pipeline, CHESS, rows=3)
    assert [one.error for one in read_status(lake.pipeline).derived] == [None, None]


def test_status_forgets_what_hindered_a_whole_declaration(lake: SmallLake) -> None:
    record(lake.pipeline, PLAYERS, error="no such function")
    template = read_status(lake.pipeline).derived[1]
    assert (template.table, template.error) == (PLAYERS, "no such function")
    record(lake.pipeline, "routes", rows=7)
    assert PLAYERS in [one.table for one in read_status(lake.pipeline).derived]
    record(lake.pipeline, CHESS, rows=3)
    assert [one.table for one in read_status(lake.pipeline).derived] == [CHESS, "routes"]


def test_status_leaves_out_what_is_declared_no_more(lake: SmallLake) -> None:
    record(lake.pipeline, "routes", error="no room")
    lake.file.write_text(lake.file.read_text().replace("  routes:", "  counts:"))
    assert [one.table for one in read_status(lake.pipeline).derived] == [CHESS]


def test_status_counts_derived_tables_apart(lake: SmallLake) -> None:
    status = read_status(lake.pipeline)
    assert status.tables == 5
    assert status.rows + sum(status.quarantined.values()) == lake.sent
    assert status.batches == 2


def test_tables_that_wait_still_do_after_others_were_derived(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path, refused=["silver_go"])
    declare_gold(lake.file, GAMES)
    lake.register(2, versions=[1])
    lake.land(50, bad_share=0)
    record(lake.pipeline, CHESS)
    assert [one.table for one in read_status(lake.pipeline).pending] == ["silver_go"]


def test_tables_list_derived_ones_after_the_landed(lake: SmallLake) -> None:
    found = read_tables(lake.pipeline)
    assert [one.kind.value for one in found] == [
        *["silver"] * 5,
        *["gold"] * 2,
        "bronze",
        "quarantine",
    ]
    chess = next(one for one in found if one.table == CHESS)
    assert (chess.rows, chess.files, chess.columns, chess.version) == (200, 1, 2, 0)
    assert (chess.route, chess.log, chess.behind, chess.last_change) == (None, None, False, None)


def test_tables_leave_out_those_that_could_never_be_derived(lake: SmallLake) -> None:
    record(lake.pipeline, "unified_gold", error="no room")
    assert "unified_gold" not in [one.table for one in read_tables(lake.pipeline)]


def test_a_derived_table_stays_one_when_it_is_declared_no_more(lake: SmallLake) -> None:
    lake.file.write_text(lake.file.read_text().replace(GAMES, ""))
    kinds = {one.table: one.kind for one in read_tables(lake.pipeline)}
    assert kinds[CHESS] is TableKind.GOLD


def test_kind_of_a_derived_table_is_known_by_its_declaration(lake: SmallLake) -> None:
    pipeline = lake.pipeline
    for table in (CHESS, "gold_any_player_agg", "routes", "unified_gold"):
        assert kind_of(pipeline, table) is TableKind.GOLD
    assert not TableKind.GOLD.is_own
    assert not TableKind.GOLD.is_landed_in
    for table in ("silver_chess", "gold_chess", "routes_2"):
        assert kind_of(pipeline, table) is TableKind.SILVER


def test_derived_tables_are_not_landed_in(lake: SmallLake, tmp_path: Path) -> None:
    assert len(landed_tables(lake.pipeline)) == 5
    graph = read_graph(lake.pipeline)
    assert sum(node.kind is NodeKind.SILVER for node in graph.nodes) == 5


def test_schema_of_a_derived_table_has_columns_and_no_history(lake: SmallLake) -> None:
    found = read_table_schema(lake.pipeline, CHESS)
    assert (found.kind, found.route, found.history) == (TableKind.GOLD, None, ())
    assert [column.name for column in found.columns] == ["user_name", "_kept"]


def test_schema_of_a_mistyped_derived_table_suggests_it(lake: SmallLake) -> None:
    with pytest.raises(LandingError) as caught:
        read_table_schema(lake.pipeline, "gold_ches_player_agg")
    assert caught.value.hint == f"did you mean `{CHESS}`?"


def test_derived_tables_of_changes_are_neither_logs_nor_merged(tmp_path: Path) -> None:
    lake = make_shop_lake(tmp_path)
    declare_gold(lake.file, SHOP)
    lake.declare()
    derive(lake.pipeline, "gold_{route}_names", "gold_shop_orders_names")
    record(lake.pipeline, "gold_shop_orders_names")
    kinds = {one.table: one.kind.value for one in read_tables(lake.pipeline)}
    assert kinds["gold_shop_orders_names"] == "gold"
    assert kinds["shop_orders"] == "merged"
    assert landed_tables(lake.pipeline) == ["log_shop_customers", "log_shop_orders"]
    assert read_table_schema(lake.pipeline, "gold_shop_orders_names").kind is TableKind.GOLD
    (derived,) = read_status(lake.pipeline).derived
    assert derived.table == "gold_shop_orders_names"
