"""`headgate graph`: what flows from where to where."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.cli.output import ago, counted, number, print_columns, print_json, printable, styled
from headgate.cli.pipeline_argument import PipelineArgument, find_pipeline
from headgate.errors import UsageError

if TYPE_CHECKING:
    from headgate.inspect.graph import Graph, GraphNode


def graph(
    pipeline: PipelineArgument = None,
    every: Annotated[
        bool, typer.Option("--all", help="Every table by itself, however many there are.")
    ] = False,
    as_mermaid: Annotated[
        bool, typer.Option("--mermaid", help="Print a flowchart for Mermaid.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what flows where: source, bronze, silver, gold.

    \b
      headgate graph games.yaml
      headgate graph games.yaml --mermaid > games.mmd

    Many tables of one template are shown as one. What is declared stands there before it is
    made.

    Next: headgate tables PIPELINE
    """
    from headgate.config import load_pipeline
    from headgate.inspect.graph import read_graph

    if as_mermaid and as_json:
        raise UsageError(
            "bad-argument", "--mermaid and --json are two forms of one thing", hint="choose one"
        )
    found = read_graph(load_pipeline(find_pipeline(pipeline)))
    shown = found if every else found.folded()
    if as_json:
        print_json(shown)
    elif as_mermaid:
        print(mermaid(shown))
    else:
        print_graph(shown)


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
