"""A pipeline as a graph: what flows from where to where, as values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

MOST_TABLES = 12
"""More of one template than these are shown as one."""


class NodeKind(StrEnum):
    """What a node stands for."""

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
        """Whether a run keeps it for itself, and no table is made of it."""
        return self in (NodeKind.QUARANTINE, NodeKind.FILES, NodeKind.LEDGER)


@dataclass(frozen=True)
class GraphNode:
    """A table, many tables of one template, or the source."""

    name: str
    """The table's; a template, with its braces; or what the source is."""
    kind: NodeKind
    template: str | None = None
    """What gave the table its name, if the pipeline file itself does not have it."""
    tables: int | None = 1
    """How many there are: none of what is declared and not made yet; None for the source."""
    rows: int | None = None
    last_batch: int | None = None
    last_at: datetime | None = None


@dataclass(frozen=True)
class GraphEdge:
    """From one node to one that is made of it, by their names."""

    source: str
    target: str


@dataclass(frozen=True)
class Graph:
    """All nodes, each after those that it is made of, and what leads to what."""

    pipeline: str
    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]

    def folded(self, most: int = MOST_TABLES) -> Graph:
        """The same, with one node for each template that has more tables than that."""
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
