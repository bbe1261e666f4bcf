"""`headgate refresh`: rebuild derived tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headgate.amounts import counted, number
from headgate.cli.output import JsonOption, print_json, print_next_steps, printable, styled
from headgate.cli.pipeline_argument import (
    PipelineArgument,
    find_pipeline,
    quiet_spark,
    split_arguments,
)

if TYPE_CHECKING:
    from headgate.gold.follow import Refreshed

_MAX_TABLES = 20


def refresh(
    pipeline: PipelineArgument = None,
    tables: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TABLE",
            help="Derived tables by name or pattern; all if none is given.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Rebuild derived tables from the landed ones.

    \b
    Examples:
      headgate refresh gold_chess_player_agg
      headgate refresh games.yaml 'gold_*' unified_gold
      headgate refresh games.yaml

    Each table is replaced in one commit, and the tables derived from it are updated. A changed
    declaration needs no refresh: the next run rebuilds its tables. The pipeline must not be
    running. Exits with 1 if a table could not be rebuilt.

    Next: headgate status PIPELINE
    """
    from headgate.config import load_pipeline

    named, first = split_arguments(pipeline, None)
    wanted = [*([first] if first else []), *(tables or ())]
    file = find_pipeline(named)
    declared = load_pipeline(file)
    with quiet_spark():
        from headgate.gold.follow import refresh as rebuild

        def began(named: list[str]) -> None:
            if not as_json:
                print(f"Rebuilding {counted(len(named), 'table')}", flush=True)

        done = rebuild(declared, wanted or ("*",), began=began)
    failed = [one for one in done if one.error is not None]
    if as_json:
        errors = [{"table": one.table, "message": one.error} for one in failed]
        print_json({"tables": done}, errors=errors)
    else:
        _print_refreshed(done)
        print_next_steps([(f"headgate status {file}", "progress and problems")])
    if failed:
        raise typer.Exit(1)


def _print_refreshed(done: list[Refreshed]) -> None:
    rebuilt = [one for one in done if one.error is None]
    for one in rebuilt[:_MAX_TABLES]:
        print(f"{styled(one.table, 'bold')}: {counted(one.rows, 'row')}, version {one.version}")
    if len(rebuilt) > _MAX_TABLES:
        rows = sum(one.rows for one in rebuilt[_MAX_TABLES:])
        print(f"and {number(len(rebuilt) - _MAX_TABLES)} more with {counted(rows, 'row')}")
    for one in done:
        if one.error is not None:
            print(f"{styled(one.table, 'red')} could not be rebuilt: {printable(one.error)}")
