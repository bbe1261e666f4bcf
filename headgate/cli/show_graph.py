"""A graph as a person reads it: a tree, with what is made of several where they part."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from headgate.cli.amounts import ago, counted, number
from headgate.cli.styled import printable, styled
from headgate.cli.text_columns import print_columns

if TYPE_CHECKING:
    from headgate.inspect.graph import Graph, GraphNode

_HEADERS = ("FLOW", "KIND", "ROWS", "LAST BATCH")


def print_graph(graph: Graph) -> None:
    (_, source, _), *rest = branches(graph)
    print(f"{styled(graph.pipeline, 'bold')} reads {printable(source.name)}")
    print_columns(_HEADERS, [_row(*each) for each in rest], right=("ROWS",))


def branches(graph: Graph) -> list[tuple[str, GraphNode, int]]:
    """Every node once: what stands before its name, itself, and of how many tables it is made."""
    nodes = {node.name: node for node in graph.nodes}
    made_of: dict[str, list[str]] = defaultdict(list)
    for edge in graph.edges:
        made_of[edge.target].append(edge.source)
    above: dict[str, tuple[str, ...]] = {}
    below: dict[str, list[str]] = defaultdict(list)
    for name in nodes:
        above[name] = _shared([(*above[one], one) for one in made_of[name]])
        below[above[name][-1] if above[name] else ""].append(name)
    tables = {
        name: sum(nodes[one].tables or 1 for one in inputs) for name, inputs in made_of.items()
    }
    several = {name for name, inputs in made_of.items() if len(inputs) > 1}
    return [
        (before, nodes[name], tables[name] if name in several else 0)
        for root in below[""]
        for before, name in _walk(root, below, "", "")
    ]


def _shared(paths: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """What all paths from the source have in common, from the source on."""
    if not paths:
        return ()
    shared = []
    for steps in zip(*paths, strict=False):
        if len(set(steps)) > 1:
            break
        shared.append(steps[0])
    return tuple(shared)


def _walk(
    name: str, below: dict[str, list[str]], before: str, further: str
) -> Iterator[tuple[str, str]]:
    yield before, name
    children = below.get(name, [])
    for child in children:
        last = child == children[-1]
        corner, line = ("└─ ", "   ") if last else ("├─ ", "│  ")
        yield from _walk(child, below, f"{further}{corner}", f"{further}{line}")


def _row(before: str, node: GraphNode, inputs: int) -> tuple[str, str, str, str]:
    name = f"{before}{node.name}"
    if node.tables is not None and node.tables > 1:
        name += f" ({counted(node.tables, 'table')})"
    if inputs > 1:
        name += f" (from {counted(inputs, 'table')})"
    rows = "" if node.rows is None else number(node.rows)
    if node.last_at is not None:
        return name, str(node.kind), rows, ago(node.last_at)
    return name, str(node.kind), rows, "not there yet" if node.tables == 0 else ""
