"""What flows where: as it is declared, as it is, and folded."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from headgate.config import Kafka
from headgate.inspect.graph import (
    MOST_TABLES,
    Graph,
    GraphEdge,
    GraphNode,
    NodeKind,
    read_graph,
    source_name,
)
from tests.inspect.change_lake import make_shop_lake
from tests.inspect.gold_declared import GAMES, SHOP, declare_gold
from tests.inspect.small_lake import SmallLake, make_small_lake

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)


def edges(graph: Graph) -> set[tuple[str, str]]:
    return {(edge.source, edge.target) for edge in graph.edges}


def many(count: int) -> Graph:
    """So many silver tables with a gold table each, and one of all of those."""
    nodes = [GraphNode("topic games", NodeKind.SOURCE, tables=None)]
    drawn = []
    for number in range(count):
        silver, gold = f"silver_{number}", f"gold_{number}"
        nodes.append(GraphNode(silver, NodeKind.SILVER, "silver_{route}", 1, 10, number, NOON))
        drawn.append(GraphEdge("topic games", silver))
        drawn.append(GraphEdge(silver, gold))
        drawn.append(GraphEdge(gold, "unified"))
    nodes += [GraphNode(f"gold_{one}", NodeKind.GOLD, "gold_{route}", 0) for one in range(count)]
    return Graph("games", (*nodes, GraphNode("unified", NodeKind.GOLD)), tuple(drawn))


def test_few_tables_are_not_folded() -> None:
    graph = many(MOST_TABLES)
    assert graph.folded() == graph


def test_many_tables_of_a_template_become_one_node() -> None:
    graph = many(MOST_TABLES + 1).folded()
    assert [node.name for node in graph.nodes] == [
        "topic games",
        "silver_{route}",
        "gold_{route}",
        "unified",
    ]
    silver, gold = graph.nodes[1:3]
    assert (silver.tables, silver.rows) == (MOST_TABLES + 1, 10 * (MOST_TABLES + 1))
    assert (silver.last_batch, silver.last_at) == (MOST_TABLES, NOON)
    assert (gold.tables, gold.rows, gold.last_at) == (0, None, None)
    assert edges(graph) == {
        ("topic games", "silver_{route}"),
        ("silver_{route}", "gold_{route}"),
        ("gold_{route}", "unified"),
    }


def test_records_flow_through_bronze_into_silver(lake: SmallLake) -> None:
    graph = read_graph(lake.pipeline)
    source = f"Delta table {lake.folder / 'inbox'}"
    silver = {node.name for node in graph.nodes if node.kind is NodeKind.SILVER}
    assert len(silver) == 5
    assert edges(graph) == {
        (source, "bronze_games"),
        *(("bronze_games", table) for table in silver),
        (source, "quarantine"),
        (source, "ledger"),
    }
    by_name = {node.name: node for node in graph.nodes}
    assert by_name["silver_reversi"].last_batch == 1
    assert by_name["bronze_games"].rows == 289
    assert by_name["ledger"].tables == 1


def test_without_bronze_records_flow_into_silver(lake: SmallLake) -> None:
    pipeline = lake.pipeline.model_copy(update={"bronze": None})
    flows = edges(read_graph(pipeline))
    assert (f"Delta table {lake.folder / 'inbox'}", "silver_chess") in flows


def test_gold_follows_what_it_is_declared_of(tmp_path: Path) -> None:
    lake = make_small_lake(tmp_path)
    declare_gold(lake.file, GAMES)
    rows = pa.table({"user_name": ["ann", "bob"]})
    write_deltalake(str(tmp_path / "lake" / "gold_chess_player_agg"), rows)
    graph = read_graph(lake.pipeline)
    by_name = {node.name: node for node in graph.nodes}
    flows = edges(graph)
    silver = {node.name for node in graph.nodes if node.kind is NodeKind.SILVER}
    assert len(silver) == 5
    for table in silver:
        gold = table.replace("silver", "gold") + "_player_agg"
        assert {(table, gold), (gold, "unified_gold"), (table, "routes")} <= flows
        assert by_name[gold].template == "gold_{route}_player_agg"
    made = by_name["gold_chess_player_agg"]
    assert (made.tables, made.rows) == (1, 2)
    assert by_name["gold_go_player_agg"].tables == 0
    assert by_name["unified_gold"].template is None
    assert ("routes", "unified_gold") not in flows


def test_what_is_declared_is_there_before_the_first_run(empty_lake: SmallLake) -> None:
    declare_gold(empty_lake.file, GAMES)
    graph = read_graph(empty_lake.pipeline)
    assert {
        ("bronze_games", "silver_{route}"),
        ("silver_{route}", "gold_{route}_player_agg"),
        ("gold_{route}_player_agg", "unified_gold"),
        ("silver_{route}", "routes"),
    } <= edges(graph)
    declared = [node for node in graph.nodes if node.kind in (NodeKind.SILVER, NodeKind.GOLD)]
    assert [node.tables for node in declared] == [0, 0, 0, 0]


def test_merged_and_history_tables_follow_their_logs(tmp_path: Path) -> None:
    lake = make_shop_lake(tmp_path)
    declare_gold(lake.file, SHOP)
    lake.declare()
    graph = read_graph(lake.pipeline)
    source = f"folder {tmp_path / 'landing'}"
    flows = edges(graph)
    for table in ("shop_orders", "shop_customers"):
        assert {
            (source, f"log_{table}"),
            (f"log_{table}", table),
            (f"log_{table}", f"history_{table}"),
            (table, f"gold_{table}_names"),
            (table, "all_names"),
        } <= flows
    assert {(source, "_files"), (source, "quarantine"), (source, "ledger")} <= flows
    assert {node.kind for node in graph.nodes if node.kind.is_beside} == {
        NodeKind.QUARANTINE,
        NodeKind.FILES,
        NodeKind.LEDGER,
    }


def test_a_source_is_named_by_what_is_read(lake: SmallLake) -> None:
    named = {
        "topic games": Kafka(servers="localhost:9092", topics=["games"]),
        "topics games, cards": Kafka(servers="localhost:9092", topics=["games", "cards"]),
        "topics games-.*": Kafka(servers="localhost:9092", pattern="games-.*"),
    }
    for name, source in named.items():
        assert source_name(lake.pipeline.model_copy(update={"source": source})) == name
