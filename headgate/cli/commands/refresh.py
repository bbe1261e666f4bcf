"""`headgate refresh`: derived tables made anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headgate.cli.output import counted, number, print_json, print_next_steps, printable, styled
from headgate.cli.pipeline_argument import PipelineArgument, find_pipeline, split_arguments

if TYPE_CHECKING:
    from headgate.gold.follow import Refreshed

_SHOWN = 20


def refresh(
    pipeline: PipelineArgument = None,
    tables: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TABLE",
            help="Derived tables by name or pattern; all of them, if none is given.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Make derived tables anew from all that has landed.

    \b
      headgate refresh gold_chess_player_agg
      headgate refresh games.yaml 'gold_*' unified_gold
      headgate refresh games.yaml

    Each table is replaced in one commit, and those that are made of it follow. A declaration that
    was changed needs no refresh: the next run makes its tables anew by itself. The pipeline must
    not run meanwhile. Exits with 1 if a table could not be made.

    Next: headgate status PIPELINE
    """
    from headgate.cli.pipeline_argument import quiet_spark
    from headgate.config import load_pipeline

    named, first = split_arguments(pipeline, None)
    wanted = [*([first] if first else []), *(tables or ())]
    file = find_pipeline(named)
    declared = load_pipeline(file)
    with quiet_spark():
        from headgate.gold.follow import refresh as make_anew

        def began(named: list[str]) -> None:
            if not as_json:
                print(f"Making {counted(len(named), 'table')} anew", flush=True)

        done = make_anew(declared, wanted or ("*",), began=began)
    failed = [one for one in done if one.error is not None]
    if as_json:
        errors = [{"table": one.table, "message": one.error} for one in failed]
        print_json({"tables": done}, errors=errors)
    else:
        _print_refreshed(done)
        print_next_steps([(f"headgate status {file}", "how far everything is")])
    if failed:
        raise typer.Exit(1)


def _print_refreshed(done: list[Refreshed]) -> None:
    well = [one for one in done if one.error is None]
    for one in well[:_SHOWN]:
        print(f"{styled(one.table, 'bold')}: {counted(one.rows, 'row')}, version {one.version}")
    if len(well) > _SHOWN:
        rows = sum(one.rows for one in well[_SHOWN:])
        print(f"and {number(len(well) - _SHOWN)} more with {counted(rows, 'row')}")
    for one in done:
        if one.error is not None:
            print(f"{styled(one.table, 'red')} could not be made: {printable(one.error)}")
