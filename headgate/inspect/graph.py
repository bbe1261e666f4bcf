"""A pipeline as a graph: the source, the tables, and which are made from which."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from headgate.config import Delta, Files, Kafka, PipelineConfig
from headgate.config.gold import ROUTE, GoldUnion
from headgate.config.names import around
from headgate.config.pipeline import FILES_TABLE
from headgate.gold.declared import landed as landed_tables
from headgate.inspect.ledger import open_ledger
from headgate.inspect.tables import TableSummary, read_tables
from headgate.lake.snapshot import Snapshot
from headgate.lake.tables import TableError
from headgate.notebook import ResultView

MOST_TABLES = 12
"""A template with more tables than this is shown as one node."""


class NodeKind(StrEnum):
    """What a node represents."""

    SOURCE = "source"
    BRONZE = "bronze"
    SILVER = "silver"
    LOG = "log"
    MERGED = "merged"
    HISTORY = "history"
    GOLD = "gold"
    QUARANTINE = "quarantine"
    FILES = "files"
    LEDGER = "ledger"

    @property
    def is_beside(self) -> bool:
        """Whether it belongs to the pipeline itself, and no table is made from it."""
        return self in (NodeKind.QUARANTINE, NodeKind.FILES, NodeKind.LEDGER)


@dataclass(frozen=True)
class GraphNode:
    """A table, many tables of one template, or the source."""

    name: str
    """A table, a template with its braces, or a description of the source."""
    kind: NodeKind
    template: str | None = None
    """The template of the table's name; None if the pipeline file has the name itself."""
    tables: int | None = 1
    """Number of tables: 0 if it is declared and not made yet; None for the source."""
    rows: int | None = None
    last_batch: int | None = None
    last_at: datetime | None = None


@dataclass(frozen=True)
class GraphEdge:
    """From one node to one that is made from it, by name."""

    source: str
    target: str


@dataclass(frozen=True)
class Graph(ResultView):
    """All nodes, each after those that it is made from, and the edges between them."""

    pipeline: str
    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]

    def folded(self, most: int = MOST_TABLES) -> Graph:
        """Return a graph with one node for each template that has more tables than that."""
        count = Counter(node.template for node in self.nodes if node.template)
        folds = {template for template, tables in count.items() if tables > most}
        name_now = {
            node.name: node.template if node.template in folds else node.name for node in self.nodes
        }
        groups: dict[str, list[GraphNode]] = {}
        for node in self.nodes:
            groups.setdefault(str(name_now[node.name]), []).append(node)
        nodes = tuple(
            members[0] if len(members) == 1 else _as_one(name, members)
            for name, members in groups.items()
        )
        edges = dict.fromkeys(
            GraphEdge(str(name_now[edge.source]), str(name_now[edge.target])) for edge in self.edges
        )
        return Graph(self.pipeline, nodes, tuple(edges))


def _as_one(template: str, members: Sequence[GraphNode]) -> GraphNode:
    rows = [node.rows for node in members if node.rows is not None]
    return GraphNode(
        name=template,
        kind=members[0].kind,
        template=template,
        tables=sum(node.tables or 0 for node in members),
        rows=sum(rows) if rows else None,
        last_batch=_newest(node.last_batch for node in members),
        last_at=max((node.last_at for node in members if node.last_at), default=None),
    )


def _newest(batches: Iterable[int | None]) -> int | None:
    return max((batch for batch in batches if batch is not None), default=None)


_MAX_WORKERS = 8

Tables = Mapping[str, TableSummary]


@dataclass
class _Drawn:
    """Nodes and edges so far."""

    nodes: dict[str, GraphNode] = field(default_factory=dict)
    edges: dict[GraphEdge, None] = field(default_factory=dict)

    def add(self, node: GraphNode, made_of: Iterable[str] = ()) -> str:
        self.nodes[node.name] = node
        self.edges |= dict.fromkeys(GraphEdge(name, node.name) for name in made_of)
        return node.name

    def add_landed(
        self,
        kind: NodeKind,
        template: str,
        tables: Tables,
        made_of: Callable[[TableSummary], str | None],
        else_of: str,
    ) -> list[str]:
        """Add all tables of one template, or the template itself if it has none yet."""
        before, after = around(template)
        found = [
            one
            for one in tables.values()
            if one.kind == kind.value and one.table.startswith(before) and one.table.endswith(after)
        ]
        if not found:
            return [self.add(GraphNode(template, kind, template, tables=0), [else_of])]
        return [self.add(_node_of(one, kind, template), [made_of(one) or else_of]) for one in found]


def read_graph(pipeline: PipelineConfig) -> Graph:
    """Read a graph with a node for every table; `folded` makes hundreds of them readable."""
    drawn = _Drawn()
    tables = {one.table: one for one in read_tables(pipeline)}
    source = drawn.add(GraphNode(source_name(pipeline), NodeKind.SOURCE, tables=None))
    if pipeline.lands_changes:
        landed = _draw_changes(drawn, pipeline, tables, source)
    else:
        landed = _draw_records(drawn, pipeline, tables, source)
    _draw_gold(drawn, pipeline, landed, tables)
    _draw_own_tables(drawn, pipeline, tables, source)
    return Graph(pipeline.name, tuple(drawn.nodes.values()), tuple(drawn.edges))


def source_name(pipeline: PipelineConfig) -> str:
    """Describe what a pipeline reads; the space in it keeps it apart from names of tables."""
    match pipeline.source:
        case Kafka(pattern=str(pattern)):
            return f"topics {pattern}"
        case Kafka(topics=topics):
            return f"{'topic' if len(topics) == 1 else 'topics'} {', '.join(topics)}"
        case Delta(path=path):
            return f"Delta table {path}"
        case Files(path=path):
            return f"folder {path}"
    raise AssertionError(f"{type(pipeline.source).__name__} is not a known source")


def _draw_records(
    drawn: _Drawn, pipeline: PipelineConfig, tables: Tables, source: str
) -> list[str]:
    raw = source
    if pipeline.bronze:
        raw = drawn.add(_own_node(pipeline.bronze, NodeKind.BRONZE, tables), [source])
    return drawn.add_landed(NodeKind.SILVER, pipeline.silver, tables, lambda _: raw, raw)


def _draw_changes(
    drawn: _Drawn, pipeline: PipelineConfig, tables: Tables, source: str
) -> list[str]:
    logs = drawn.add_landed(NodeKind.LOG, pipeline.change_log, tables, lambda _: source, source)
    landed: list[str] = []
    for kind, template in (
        (NodeKind.MERGED, pipeline.merged),
        (NodeKind.HISTORY, pipeline.history),
    ):
        if template is not None:
            made = drawn.add_landed(kind, template, tables, lambda one: one.log, logs[0])
            landed = made if kind is NodeKind.MERGED else landed
    return landed


def _draw_gold(
    drawn: _Drawn, pipeline: PipelineConfig, landed: Sequence[str], tables: Tables
) -> None:
    made_of = dict(_gold_and_its_inputs(pipeline, landed))
    with ThreadPoolExecutor(_MAX_WORKERS) as pool:
        rows = list(pool.map(lambda each: _row_count(pipeline.lake, each[1]), made_of))
    for ((declaration, table), inputs), count in zip(made_of.items(), rows, strict=True):
        last = tables.get(table) if count is not None else None
        node = GraphNode(
            name=table,
            kind=NodeKind.GOLD,
            template=declaration if ROUTE in declaration else None,
            tables=0 if count is None else 1,
            rows=count,
            last_batch=last.last_batch if last else None,
            last_at=last.last_at if last else None,
        )
        drawn.add(node, inputs)


def _gold_and_its_inputs(
    pipeline: PipelineConfig, landed: Sequence[str]
) -> Iterator[tuple[tuple[str, str], list[str]]]:
    """Yield declarations and tables with their inputs, each after its inputs."""
    known = landed_tables(pipeline, [(table, "") for table in landed])
    parts = {one.table: one.name for one in known}
    unions: dict[str, GoldUnion] = {}
    of_routes: list[str] = []
    for declaration, said in pipeline.gold.items():
        if isinstance(said, GoldUnion) and said.from_ != pipeline.gold_source:
            unions[declaration] = said
        elif ROUTE not in declaration:
            yield (declaration, declaration), list(landed)
        else:
            for table in landed:
                # A template represents tables that do not exist yet.
                name = declaration if "{" in table else declaration.replace(ROUTE, parts[table])
                yield (declaration, name), [table]
                of_routes.append(name)
    for declaration, union in unions.items():
        yield (declaration, declaration), [name for name in of_routes if union.takes(name)]


def _draw_own_tables(drawn: _Drawn, pipeline: PipelineConfig, tables: Tables, source: str) -> None:
    drawn.add(_own_node(pipeline.quarantine_table, NodeKind.QUARANTINE, tables), [source])
    if pipeline.lands_changes:
        drawn.add(_own_node(FILES_TABLE, NodeKind.FILES, tables), [source])
    rows, batches = (
        _row_count(pipeline.lake, pipeline.ledger),
        open_ledger(pipeline).stream.batches(),
    )
    node = GraphNode(
        name=pipeline.ledger,
        kind=NodeKind.LEDGER,
        tables=0 if rows is None else 1,
        rows=rows,
        last_batch=batches.version,
        last_at=batches.at,
    )
    drawn.add(node, [source])


def _own_node(name: str, kind: NodeKind, tables: Tables) -> GraphNode:
    if name in tables:
        return _node_of(tables[name], kind, None)
    return GraphNode(name, kind, tables=0)


def _node_of(table: TableSummary, kind: NodeKind, template: str | None) -> GraphNode:
    return GraphNode(
        name=table.table,
        kind=kind,
        template=template,
        rows=table.rows,
        last_batch=table.last_batch,
        last_at=table.last_at,
    )


def _row_count(lake: str, table: str) -> int | None:
    """Return the rows according to the table's Delta log; None if there is no such table."""
    try:
        snapshot = Snapshot.open(lake, table)
    except (TableError, OSError):
        return None
    return None if snapshot is None else snapshot.count()
