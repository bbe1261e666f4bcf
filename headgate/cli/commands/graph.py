"""`headgate graph`: how tables are made from each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.amounts import counted, number
from headgate.cli.output import JsonOption, ago, print_columns, print_json, printable, styled
from headgate.cli.pipeline_argument import PipelineArgument, find_pipeline
from headgate.errors import UsageError

if TYPE_CHECKING:
    from headgate.inspect.graph import Graph, GraphNode


def graph(
    pipeline: PipelineArgument = None,
    every: Annotated[
        bool, typer.Option("--all", help="Show every table instead of one line per template.")
    ] = False,
    as_mermaid: Annotated[
        bool, typer.Option("--mermaid", help="Print a Mermaid flowchart.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the data flow: source, bronze, silver, gold.

    \b
    Examples:
      headgate graph games.yaml
      headgate graph games.yaml --mermaid > games.mmd

    If a template has many tables, they are shown as one. Declared tables are shown before they
    exist.

    Next: headgate tables PIPELINE
    """
    from headgate.config import load_pipeline
    from headgate.inspect.graph import read_graph

    if as_mermaid and as_json:
        raise UsageError(
            "bad-argument", "--mermaid and --json cannot be combined", hint="choose one"
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
    """Return every node once: the branch drawn before it, the node, its number of inputs."""
    nodes = {node.name: node for node in graph.nodes}
    inputs_of: dict[str, list[str]] = defaultdict(list)
    for edge in graph.edges:
        inputs_of[edge.target].append(edge.source)
    above: dict[str, tuple[str, ...]] = {}
    below: dict[str, list[str]] = defaultdict(list)
    for name in nodes:
        above[name] = _shared([(*above[one], one) for one in inputs_of[name]])
        below[above[name][-1] if above[name] else ""].append(name)
    tables = {
        name: sum(nodes[one].tables or 1 for one in inputs) for name, inputs in inputs_of.items()
    }
    several = {name for name, inputs in inputs_of.items() if len(inputs) > 1}
    return [
        (before, nodes[name], tables[name] if name in several else 0)
        for root in below[""]
        for before, name in _walk(root, below, "", "")
    ]


def _shared(paths: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the common prefix of all paths from the source."""
    if not paths:
        return ()
    shared = []
    for steps in zip(*paths, strict=False):
        if len(set(steps)) > 1:
            break
        shared.append(steps[0])
    return tuple(shared)


def _walk(
    name: str, below: dict[str, list[str]], before: str, indent: str
) -> Iterator[tuple[str, str]]:
    yield before, name
    children = below.get(name, [])
    for child in children:
        last = child == children[-1]
        corner, line = ("└─ ", "   ") if last else ("├─ ", "│  ")
        yield from _walk(child, below, f"{indent}{corner}", f"{indent}{line}")


def _row(before: str, node: GraphNode, inputs: int) -> tuple[str, str, str, str]:
    name = f"{before}{node.name}"
    if node.tables is not None and node.tables > 1:
        name += f" ({counted(node.tables, 'table')})"
    if inputs > 1:
        name += f" (from {counted(inputs, 'table')})"
    rows = "" if node.rows is None else number(node.rows)
    if node.last_at is not None:
        return name, str(node.kind), rows, ago(node.last_at)
    return name, str(node.kind), rows, "not created yet" if node.tables == 0 else ""


_SAFE = frozenset(" _.,:/-()")


def mermaid(graph: Graph) -> str:
    """Return a flowchart from left to right; dotted arrows lead to quarantine and ledger."""
    return "\n".join(_lines(graph))


def label(text: str) -> str:
    """Escape text for Mermaid: unsafe characters become numeric entities."""
    return "".join(
        each if (each.isascii() and each.isalnum()) or each in _SAFE else f"#{ord(each)};"
        for each in printable(text)
    )


def _lines(graph: Graph) -> Iterator[str]:
    # Node ids are numbers: a table may be called `end`, which is a Mermaid keyword.
    ids = {node.name: f"n{position}" for position, node in enumerate(graph.nodes)}
    side_tables = {node.name for node in graph.nodes if node.kind.is_beside}
    yield "flowchart LR"
    for node in graph.nodes:
        yield f"  {ids[node.name]}{_shape(node)}"
    for edge in graph.edges:
        arrow = "-.->" if edge.target in side_tables else "-->"
        yield f"  {ids[edge.source]} {arrow} {ids[edge.target]}"


def _shape(node: GraphNode) -> str:
    """A source is a stadium, a table a cylinder, a table that does not exist yet a box."""
    name = label(node.name)
    if node.tables is None:
        return f'(["{name}"])'
    if node.tables == 0:
        return f'["{name}"]'
    many = f" ({counted(node.tables, 'table')})" if node.tables > 1 else ""
    rows = "" if node.rows is None else f"<br/>{counted(node.rows, 'row')}"
    return f'[("{name}{label(many)}{rows}")]'
