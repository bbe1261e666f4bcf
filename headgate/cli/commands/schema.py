"""`headgate schema`: a table's columns and their history, and the difference of two schemas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from headgate.amounts import counted
from headgate.cli.help import GroupedOptions
from headgate.cli.output import JsonOption, Style, ago, print_columns, print_json, printable, styled
from headgate.cli.pipeline_argument import (
    PipelineArgument,
    find_pipeline,
    load_record_pipeline,
    split_arguments,
)
from headgate.errors import UsageError
from headgate.schema.changes import AddColumn, CreateTable, Outcome, SchemaChange

if TYPE_CHECKING:
    from headgate.inspect.ledger import RecordedChange
    from headgate.inspect.schema import TableSchema
    from headgate.inspect.schema_diff import SchemaDiff

app = typer.Typer(rich_markup_mode=None, subcommand_metavar="[PIPELINE] TABLE | diff A B")
_HEADERS = ("BATCH", "WHEN", "CHANGE", "OUTCOME", "SCHEMA IDS")
_ROLES = {"log": ", change log of", "merged": ", merged rows of", "history": ", history of"}

Mark = Literal["+", "~", "!"]
_STYLES: dict[Mark, Style] = {"+": "green", "~": "yellow", "!": "red"}


@app.callback()
def schema() -> None:
    """Show a table's columns and history, or compare two schemas.

    \b
    Examples:
      headgate schema games.yaml silver_chess            columns and schema changes so far
      headgate schema diff silver_chess chess-value      what the newest schema would change
      headgate schema diff ./old.proto ./new.proto       the same before it is registered

    Next: headgate plan PIPELINE does that for all tables
    """


@app.command("show", cls=GroupedOptions)
def show(
    first: PipelineArgument = None,
    second: Annotated[
        str | None,
        typer.Argument(
            metavar="TABLE", help="A table, a route, or a source table.", show_default=False
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show a table's columns and history.

    \b
    Examples:
      headgate schema games.yaml silver_chess
      headgate schema games.yaml chess              by route
      headgate schema shop.yaml shop.orders         the change log of a source table

    The history comes from the ledger: what changed, in which batch, because of which schemas.
    The word `show` is optional.

    Next: headgate tables PIPELINE lists all tables
    """
    pipeline, table = split_arguments(first, second)
    if table is None:
        raise UsageError(
            "bad-argument", "missing argument TABLE", hint="headgate tables lists tables"
        )
    from headgate.config import load_pipeline
    from headgate.inspect.schema import read_table_schema

    found = read_table_schema(load_pipeline(find_pipeline(pipeline)), table)
    if as_json:
        print_json(found)
        return
    _print_schema(found)


@app.command("diff", cls=GroupedOptions)
def diff(
    first: Annotated[
        str,
        typer.Argument(metavar="A", help="A table, a subject, a schema id or a file."),
    ],
    second: Annotated[str, typer.Argument(metavar="B", help="What to compare it with.")],
    pipeline: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Pipeline file; optional for two files, or if the folder has only one.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the schema changes from A to B.

    \b
    Examples:
      headgate schema diff silver_chess chess-value    a table and a subject's newest version
      headgate schema diff silver_chess@7 chess        a version of a table and a route's table
      headgate schema diff chess-value@1 12            a subject's version and a schema id
      headgate schema diff ./old.proto ./new.avsc      files, under the contract `evolve`

    Each change has the outcome that the contract gives it. A name that is both a table and a
    subject means the table. If a schema has several messages, the first is used.

    Marks: + added, ~ widened or cast, ! breaking or not applied.

    Next: headgate plan PIPELINE
    """
    from headgate.inspect.schema_diff import is_schema_file, read_schema_diff

    needed = pipeline is not None or not (is_schema_file(first) and is_schema_file(second))
    found = read_schema_diff(first, second, load_record_pipeline(pipeline) if needed else None)
    if as_json:
        print_json(found.as_record())
        return
    _print_diff(found)


def mark_of(change: SchemaChange) -> Mark:
    """Return `+` for an addition, `~` for a compatible change, `!` for one to look at."""
    if change.breaking or change.outcome is not Outcome.APPLIED:
        return "!"
    return "+" if isinstance(change, AddColumn | CreateTable) else "~"


def print_changes(changes: Sequence[tuple[SchemaChange, str]], headed: bool = False) -> None:
    """Print changes with mark, outcome and an optional note."""
    texts = [printable(str(change).removeprefix("+ ")) for change, _ in changes]
    width = max(map(len, ["CHANGE", *texts]))
    if headed:
        print(styled(f"     {'CHANGE'.ljust(width)}  OUTCOME", "dim"))
    for (change, note), text in zip(changes, texts, strict=True):
        mark = mark_of(change)
        outcome = f"{change.outcome}, {note}" if note else str(change.outcome)
        print(f"  {styled(mark, _STYLES[mark])}  {text.ljust(width)}  {outcome}")


def _print_diff(found: SchemaDiff) -> None:
    print(f"from {styled(printable(str(found.first)), 'bold')}")
    print(f"to   {styled(printable(str(found.second)), 'bold')}\n")
    if not found.changes:
        print("No changes")
        return
    print_changes([(change, "") for change in found.changes], headed=True)


def _print_schema(found: TableSchema) -> None:
    title = f"{styled(found.table, 'bold')}{_origin(found)}, version {found.version}"
    print(f"{title}, {counted(len(found.columns), 'column')}\n")
    # The message's own columns first: origin columns are the same in every table.
    columns = sorted(found.columns, key=lambda each: each.origin)
    print_columns(
        ("COLUMN", "TYPE", ""),
        [(each.name, each.type, "origin" if each.origin else "") for each in columns],
    )
    print()
    if found.kind == "gold":
        print("Derived: its columns come from its declaration; `_` columns hold aggregation state")
        return
    if not found.history:
        print("The ledger has no schema change of this table")
        return
    if found.follows:
        print(f"History of {found.follows}, which it is built from:\n")
    # Change files carry their schemas, which have no ids.
    last = None if any(each.schema_ids for each in found.history) else -1
    rows = [_row(each)[:last] for each in found.history]
    print_columns(_HEADERS[:last], rows, right=("BATCH",))


def _origin(found: TableSchema) -> str:
    if not found.route:
        return ""
    return f"{_ROLES.get(found.kind, ' of route')} {printable(found.route)}"


def _row(change: RecordedChange) -> tuple[str, ...]:
    return (
        str(change.batch),
        ago(change.at),
        change.text,
        change.outcome,
        ", ".join(map(str, change.schema_ids)),
    )
