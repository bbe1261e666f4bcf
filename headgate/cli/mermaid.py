"""A graph as Mermaid draws it: text that pages such as GitHub's show as a picture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headgate.cli.amounts import counted
from headgate.cli.styled import printable

if TYPE_CHECKING:
    from headgate.inspect.graph import Graph, GraphNode

_PLAIN = frozenset(" _.,:/-()")


def mermaid(graph: Graph) -> str:
    """A flowchart from left to right; what a run keeps for itself hangs on dotted lines."""
    return "\n".join(_lines(graph))


def label(text: str) -> str:
    """Text between quotes: whatever is neither letter, digit nor harmless becomes its number."""
    return "".join(
        each if (each.isascii() and each.isalnum()) or each in _PLAIN else f"#{ord(each)};"
        for each in printable(text)
    )


def _lines(graph: Graph) -> Iterator[str]:
    # Names of nodes are numbers: a table may be called `end`, which is a word of Mermaid.
    place = {node.name: f"n{position}" for position, node in enumerate(graph.nodes)}
    beside = {node.name for node in graph.nodes if node.kind.is_beside}
    yield "flowchart LR"
    for node in graph.nodes:
        yield f"  {place[node.name]}{_shape(node)}"
    for edge in graph.edges:
        arrow = "-.->" if edge.target in beside else "-->"
        yield f"  {place[edge.source]} {arrow} {place[edge.target]}"


def _shape(node: GraphNode) -> str:
    """A source is a stadium, a table a cylinder, one that is not there yet a box."""
    name = label(node.name)
    if node.tables is None:
        return f'(["{name}"])'
    if node.tables == 0:
        return f'["{name}"]'
    many = f" ({counted(node.tables, 'table')})" if node.tables > 1 else ""
    rows = "" if node.rows is None else f"<br/>{counted(node.rows, 'row')}"
    return f'[("{name}{label(many)}{rows}")]'
