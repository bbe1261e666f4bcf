"""`headgate schema`: a table's columns and what they went through; and what sets two apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headgate.cli.output import ago, counted, print_columns, print_json, printable, styled
from headgate.cli.pipeline_argument import find_pipeline, load_named, split_arguments
from headgate.cli.schema_changes import print_changes
from headgate.errors import UsageError

if TYPE_CHECKING:
    from headgate.inspect import RecordedChange, SchemaDiff, TableSchema

app = typer.Typer(rich_markup_mode=None, subcommand_metavar="[PIPELINE] TABLE | diff A B")
_HEADERS = ("BATCH", "WHEN", "CHANGE", "OUTCOME", "SCHEMA IDS")
_WHAT_OF = {"log": ", changes of", "merged": ", rows of", "history": ", history of"}
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.callback()
def schema() -> None:
    """Show a table's columns and what they went through, or compare two schemas.

    \b
      headgate schema games.yaml silver_chess            what it is, and how it came to that
      headgate schema diff silver_chess chess-value      what the newest schema would change
      headgate schema diff ./old.proto ./new.proto       the same before it is registered

    Next: headgate plan PIPELINE does that for all tables
    """


@app.command("show")
def show(
    first: Annotated[
        str | None,
        typer.Argument(
            metavar="PIPELINE",
            help="The pipeline file; may be left out where a folder has only one.",
            show_default=False,
        ),
    ] = None,
    second: Annotated[
        str | None,
        typer.Argument(
            metavar="TABLE", help="A table, a route, or a table of the source.", show_default=False
        ),
    ] = None,
    as_json: _Json = False,
) -> None:
    """Show a table's columns and what they went through.

    \b
      headgate schema games.yaml silver_chess
      headgate schema games.yaml chess
      headgate schema shop.yaml shop.orders         the change log of a table of the source

    The history comes from the ledger: what changed, in which batch, because of which schemas.
    The word `show` may be left out.

    Next: headgate tables PIPELINE lists all tables
    """
    pipeline, table = split_arguments(first, second)
    if table is None:
        raise UsageError("bad-argument", "name a table", hint="headgate tables lists them")
    from headgate.config import load_pipeline
    from headgate.inspect import read_table_schema

    found = read_table_schema(load_pipeline(find_pipeline(pipeline)), table)
    if as_json:
        print_json(found)
        return
    _print_schema(found)


@app.command("diff")
def diff(
    first: Annotated[
        str,
        typer.Argument(metavar="A", help="A table, a subject, a schema id or a file."),
    ],
    second: Annotated[str, typer.Argument(metavar="B", help="What it is compared with.")],
    pipeline: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="The pipeline file; not needed for two files, nor where a folder has only one.",
            show_default=False,
        ),
    ] = None,
    as_json: _Json = False,
) -> None:
    """Show what going from one schema to another changes.

    \b
      headgate schema diff silver_chess chess-value    a table, and a subject's newest version
      headgate schema diff silver_chess@7 chess        a table at a version, and a route's table
      headgate schema diff chess-value@1 12            a subject's version, and a schema id
      headgate schema diff ./old.proto ./new.avsc      files; without a pipeline, all is followed

    Each change has the outcome that the contract gives it. A table comes before a subject of the
    same name; of several messages in a schema, the first is taken.

    Marks: + is added, ~ is widened or cast, ! breaks something or is kept out.

    Next: headgate plan PIPELINE
    """
    from headgate.inspect import is_schema_file, read_schema_diff

    needed = pipeline is not None or not (is_schema_file(first) and is_schema_file(second))
    found = read_schema_diff(first, second, load_named(pipeline) if needed else None)
    if as_json:
        print_json(found.as_record())
        return
    _print_diff(found)


def _print_diff(found: SchemaDiff) -> None:
    print(f"from {styled(printable(str(found.first)), 'bold')}")
    print(f"to   {styled(printable(str(found.second)), 'bold')}\n")
    if not found.changes:
        print("Nothing changes")
        return
    print_changes([(change, "") for change in found.changes], headed=True)


def _print_schema(found: TableSchema) -> None:
    title = f"{styled(found.table, 'bold')}{_origin(found)}, version {found.version}"
    print(f"{title}, {counted(len(found.columns), 'column')}\n")
    # The message's own columns first; where a record came from is the same in every table.
    columns = sorted(found.columns, key=lambda each: each.origin)
    print_columns(
        ("COLUMN", "TYPE", ""),
        [(each.name, each.type, "origin" if each.origin else "") for each in columns],
    )
    print()
    if found.kind == "gold":
        print("It is derived: its columns follow from its declaration; `_…` is kept to go on from")
        return
    if not found.history:
        print("The ledger has no change of this table")
        return
    if found.follows:
        print(f"What happened to {found.follows}, which it follows:\n")
    # Changes bring their schemas along: those have no ids.
    last = None if any(each.schema_ids for each in found.history) else -1
    rows = [_row(each)[:last] for each in found.history]
    print_columns(_HEADERS[:last], rows, right=("BATCH",))


def _origin(found: TableSchema) -> str:
    if not found.route:
        return ""
    return f"{_WHAT_OF.get(found.kind, ' of route')} {printable(found.route)}"


def _row(change: RecordedChange) -> tuple[str, ...]:
    return (
        str(change.batch),
        ago(change.at),
        change.text,
        change.outcome,
        ", ".join(map(str, change.schema_ids)),
    )
