"""`headgate schema`: a table's columns and what they went through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headgate.cli.amounts import ago, counted
from headgate.cli.find_pipeline import load_named, split_arguments
from headgate.cli.json_output import print_json
from headgate.cli.styled import printable, styled
from headgate.cli.text_columns import print_columns
from headgate.errors import UsageError

if TYPE_CHECKING:
    from headgate.inspect import RecordedChange, TableSchema


def schema(
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
        typer.Argument(metavar="TABLE", help="A table or a route.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show a table's columns and what they went through.

    \b
      headgate schema games.yaml silver_chess
      headgate schema games.yaml chess

    The history comes from the ledger: what changed, in which batch, because of which schemas.

    Next: headgate tables PIPELINE lists all tables
    """
    pipeline, table = split_arguments(first, second)
    if table is None:
        raise UsageError("bad-argument", "name a table", hint="headgate tables lists them")
    from headgate.inspect import read_table_schema

    found = read_table_schema(load_named(pipeline), table)
    if as_json:
        print_json(found)
        return
    _print_schema(found)


def _print_schema(found: TableSchema) -> None:
    of_route = f" of route {printable(found.route)}" if found.route else ""
    title = f"{styled(found.table, 'bold')}{of_route}, version {found.version}"
    print(f"{title}, {counted(len(found.columns), 'column')}\n")
    # The message's own columns first; where a record came from is the same in every table.
    columns = sorted(found.columns, key=lambda each: each.origin)
    print_columns(
        ("COLUMN", "TYPE", ""),
        [(each.name, each.type, "origin" if each.origin else "") for each in columns],
    )
    print()
    if not found.history:
        print("The ledger has no change of this table")
        return
    print_columns(
        ("BATCH", "WHEN", "CHANGE", "OUTCOME", "SCHEMA IDS"),
        [_row(each) for each in found.history],
        right=("BATCH",),
    )


def _row(change: RecordedChange) -> tuple[str, ...]:
    return (
        str(change.batch),
        ago(change.at),
        change.text,
        change.outcome,
        ", ".join(map(str, change.schema_ids)),
    )
