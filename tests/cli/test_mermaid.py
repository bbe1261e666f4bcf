"""What Mermaid is given can be read by Mermaid, whatever things are called."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from headgate.cli.commands.graph import label, mermaid
from headgate.cli.output import printable
from headgate.inspect.graph import Graph, GraphEdge, GraphNode, NodeKind

_LABEL = r'"(?:[A-Za-z0-9 _.,:/()-]|#[0-9]+;|<br/>)*"'
_LINE = re.compile(
    rf"flowchart LR|  n[0-9]+(?:\(\[{_LABEL}\]\)|\[{_LABEL}\]|\[\({_LABEL}\)\])"
    r"|  n[0-9]+ (?:-->|-\.->) n[0-9]+"
)


def shown(written: str) -> str:
    """A label as Mermaid shows it."""
    return re.sub(r"#([0-9]+);", lambda code: chr(int(code[1])), written)


@given(st.text())
def test_a_label_shows_the_text_and_holds_nothing_else(text: str) -> None:
    written = label(text)
    assert re.fullmatch(_LABEL, f'"{written}"')
    assert "<br/>" not in written
    assert shown(written) == printable(text)


@given(st.lists(st.text(min_size=1), min_size=2, unique=True), st.integers(0, 3))
def test_every_line_is_one_that_mermaid_knows(names: list[str], tables: int) -> None:
    source, *others = names
    nodes = [GraphNode(source, NodeKind.SOURCE, tables=None)]
    nodes += [GraphNode(name, NodeKind.SILVER, tables=tables, rows=tables) for name in others]
    drawn = [GraphEdge(source, name) for name in others]
    lines = mermaid(Graph("games", tuple(nodes), tuple(drawn))).split("\n")
    assert len(lines) == 1 + len(nodes) + len(drawn)
    assert [line for line in lines if not _LINE.fullmatch(line)] == []


def test_words_of_mermaid_can_be_names() -> None:
    nodes = (
        GraphNode('Delta table /a "b" [c]', NodeKind.SOURCE, tables=None),
        GraphNode("end", NodeKind.SILVER, rows=1),
        GraphNode("gold_{route}", NodeKind.GOLD, tables=250, rows=5000),
        GraphNode("ledger", NodeKind.LEDGER, tables=0),
    )
    edges = tuple(GraphEdge(nodes[0].name, node.name) for node in nodes[1:])
    assert mermaid(Graph("games", nodes, edges)).split("\n") == [
        "flowchart LR",
        '  n0(["Delta table /a #34;b#34; #91;c#93;"])',
        '  n1[("end<br/>1 row")]',
        '  n2[("gold_#123;route#125; (250 tables)<br/>5,000 rows")]',
        '  n3["ledger"]',
        "  n0 --> n1",
        "  n0 --> n2",
        "  n0 -.-> n3",
    ]
