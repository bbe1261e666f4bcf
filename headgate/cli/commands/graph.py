"""`headgate graph`: what flows from where to where."""

from __future__ import annotations

from typing import Annotated

import typer

from headgate.cli.find_pipeline import PipelineArgument, find_pipeline
from headgate.cli.json_output import print_json
from headgate.errors import UsageError


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
    from headgate.inspect.read_graph import read_graph
    from headgate.pipeline import load_pipeline

    if as_mermaid and as_json:
        raise UsageError(
            "bad-argument", "--mermaid and --json are two forms of one thing", hint="choose one"
        )
    found = read_graph(load_pipeline(find_pipeline(pipeline)))
    shown = found if every else found.folded()
    if as_json:
        print_json(shown)
    elif as_mermaid:
        from headgate.cli.mermaid import mermaid

        print(mermaid(shown))
    else:
        from headgate.cli.show_graph import print_graph

        print_graph(shown)
