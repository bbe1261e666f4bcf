"""`headgate pending`: list or drop staged files that could not be committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.amounts import counted, number
from headgate.cli.help import GroupedOptions
from headgate.cli.output import (
    JsonOption,
    print_columns,
    print_json,
    print_next_steps,
    require_prompt,
)
from headgate.cli.pipeline_argument import PipelineArgument, find_pipeline, split_arguments
from headgate.errors import UsageError

if TYPE_CHECKING:
    from headgate.engine.pending import PendingFile

app = typer.Typer(
    rich_markup_mode=None,
    help="List or drop staged files whose tables could not be committed.",
)


@app.command("list", cls=GroupedOptions)
def list_files(pipeline: PipelineArgument = None, as_json: JsonOption = False) -> None:
    """List staged files whose tables could not be committed.

    \b
    Example:
      headgate pending list games.yaml

    Every batch and every start of a run tries to commit them again.

    Next: headgate run PIPELINE, once its table is fixed
    """
    from headgate.config import load_pipeline
    from headgate.engine.pending import list_pending

    file = find_pipeline(pipeline)
    found = list_pending(load_pipeline(file))
    if as_json:
        print_json({"files": found})
    elif not found:
        print("No table is pending")
    else:
        _print(found)
        print_next_steps(
            [(f"headgate run {file}", "commit them, once their tables can be written")]
        )


@app.command(cls=GroupedOptions)
def drop(
    pipeline: PipelineArgument = None,
    table: Annotated[
        str | None,
        typer.Argument(metavar="TABLE", help="Table of the files.", show_default=False),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", metavar="FILE", help="Only this file, as `pending list` names it."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Drop pending files of a table: their records are lost.

    \b
    Examples:
      headgate pending drop games.yaml silver_chess
      headgate pending drop games.yaml silver_chess --file part-….parquet --yes

    For files that can never be committed. The ledger keeps a row for each of them, and status
    shows them as lost. The pipeline must not be running.

    Next: headgate status PIPELINE
    """
    from headgate.config import load_pipeline
    from headgate.engine.pending import drop_pending

    named, wanted = split_arguments(pipeline, table)
    if wanted is None:
        raise UsageError("bad-argument", "no table is named", hint="headgate pending list")
    if not yes:
        require_prompt("drop", as_json)
    path = find_pipeline(named)
    dropped = drop_pending(
        load_pipeline(path), wanted, file, lambda files: yes or _confirmed(files)
    )
    if as_json:
        print_json({"dropped": dropped})
    elif dropped:
        rows = counted(sum(one.rows for one in dropped), "record")
        print(f"Dropped {counted(len(dropped), 'file')} with {rows}")
        print_next_steps([(f"headgate status {path}", "progress and problems")])
    else:
        print("Nothing was dropped")


def _confirmed(files: Sequence[PendingFile]) -> bool:
    _print(files)
    rows = counted(sum(one.rows for one in files), "record")
    return bool(typer.confirm(f"Drop {counted(len(files), 'file')} with {rows} for good?"))


def _print(files: Sequence[PendingFile]) -> None:
    rows = [
        (
            one.table,
            number(one.rows),
            str(one.batch),
            one.file if one.exists else f"{one.file} (gone)",
            one.error,
        )
        for one in files
    ]
    print_columns(("table", "records", "batch", "file", "error"), rows, right=("records", "batch"))
