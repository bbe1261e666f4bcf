"""`headgate query`: rows of a query, and every change of them."""

from __future__ import annotations

import sys
from collections import deque
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.amounts import counted, number
from headgate.cli.output import cell, print_json_line, print_rows, printable, styled
from headgate.cli.pipeline_argument import PipelineArgument, find_pipeline, split_arguments
from headgate.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from headgate.serve.push import Change
    from headgate.serve.query import Query

_BEGIN = "Where to begin"
_MARKS = {"insert": ("+", "green"), "update": ("~", "yellow"), "delete": ("-", "red")}


def query(
    pipeline: PipelineArgument = None,
    sql: Annotated[
        str | None,
        typer.Argument(metavar="SQL", help="A SELECT over tables of the lake.", show_default=False),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(help="Go on after the change with this token.", rich_help_panel=_BEGIN),
    ] = None,
    from_version: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Begin with the changes after this version.", rich_help_panel=_BEGIN
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Begin with the changes of the last 10m, 2h, …",
            rich_help_panel=_BEGIN,
        ),
    ] = None,
    new: Annotated[
        bool, typer.Option("--new", help="Begin with new changes.", rich_help_panel=_BEGIN)
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON lines, as in a pipe.")
    ] = False,
) -> None:
    """Query tables, and watch the result change.

    \b
    Examples:
      headgate query games.yaml "SELECT count(*) FROM silver_chess"
      headgate query pizza.yaml "SELECT * FROM pizza_orders_avro WHERE store_id = 2 EMIT CHANGES"
      headgate query pizza.yaml "SELECT store_id, count(*) AS orders FROM pizza_orders_avro
        GROUP BY store_id EMIT CHANGES LIMIT 100" --since 1h

    With EMIT CHANGES it prints the rows so far, then every change as it is committed, until LIMIT
    or Ctrl-C. Each change has a token; --token continues after it, with nothing left out and
    nothing twice. Names are found in any case, and a route means its table. The SQL is Spark's.

    Next: headgate tables PIPELINE
    """
    from headgate.pipeline import load

    named, text = split_arguments(pipeline, sql)
    if text is None:
        hint = 'headgate query PIPELINE "SELECT …"'
        raise UsageError("bad-argument", "the query is missing", hint=hint)
    found = load(find_pipeline(named)).query(
        text, token=token, from_version=from_version, since=since, only_new=new
    )
    try:
        if not found.emits_changes:
            _print_rows(found, as_json or not sys.stdout.isatty())
        elif as_json or not sys.stdout.isatty():
            _print_changes(found)
        else:
            _show_changes(found)
    except KeyboardInterrupt:
        pass


def _print_rows(query: Query, as_json: bool) -> None:
    print_rows(query.read(), as_json)


def _print_changes(query: Query) -> None:
    for change in query:
        print_json_line(change.record)


def _show_changes(query: Query) -> None:
    """Show the newest changes as a table that is drawn again, and the token at the end."""
    from rich.console import Console
    from rich.live import Live

    console = Console()
    newest: deque[Change] = deque(maxlen=max(console.height - 6, 5))
    count = 0
    try:
        with Live(console=console, refresh_per_second=8, transient=True) as live:
            for change in query:
                count += 1
                newest.append(change)
                live.update(_table(newest, count))
    finally:
        if newest:
            console.print(_table(newest, count))
            print(styled(f"To continue: --token {newest[-1].token}", "dim"))


def _table(changes: deque[Change], count: int) -> Table:
    from rich.table import Table
    from rich.text import Text

    names = list(changes[-1].row)
    last = changes[-1]
    table = Table(
        box=None,
        header_style="dim",
        caption=f"{counted(count, 'change')}; {last.table} at version {number(last.version)}",
        caption_justify="left",
    )
    table.add_column("")
    for name in names:
        table.add_column(Text(printable(name)), overflow="ellipsis", no_wrap=True)
    for change in changes:
        mark, style = _MARKS[change.operation]
        cells = [Text(cell(change.row.get(name))) for name in names]
        table.add_row(Text(mark, style), *cells)
    return table
