"""`headgate remove`: everything that a pipeline owns, listed and removed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.amounts import counted, size
from headgate.cli.output import (
    JsonOption,
    print_json,
    print_next_steps,
    printable,
    require_prompt,
    styled,
)
from headgate.cli.pipeline_argument import PipelineArgument, find_pipeline, quiet_spark

if TYPE_CHECKING:
    from headgate.remove import Owned, Ownership

_MAX_NAMES = 5


def remove(
    pipeline: PipelineArgument = None,
    tables: Annotated[
        bool, typer.Option("--tables", help="Tables, with checkpoints and notes.")
    ] = False,
    catalog: Annotated[bool, typer.Option("--catalog", help="Entries of the catalog.")] = False,
    source: Annotated[
        bool,
        typer.Option(
            "--source", help="Topics and subjects, or the folder that the pipeline reads."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List what would be removed, and remove nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove what a pipeline owns: tables, checkpoints, entries of a catalog.

    \b
    Examples:
      headgate remove games.yaml --dry-run
      headgate remove games.yaml
      headgate remove games.yaml --tables --catalog --source --yes     a trial, without a trace

    Without a choice, tables and entries of the catalog are removed, and the source stays. Tables
    that other pipelines or applications have written to stay, and are listed. Lists everything
    first and asks once. The pipeline must not be running; its file stays.

    Next: headgate run PIPELINE lands everything again
    """
    from headgate.config import load_pipeline

    if not (tables or catalog or source):
        tables = catalog = True
    if not (yes or dry_run):
        require_prompt("remove", as_json)
    file = find_pipeline(pipeline)
    declared = load_pipeline(file)
    with quiet_spark():
        from headgate.remove import Kind, owned_by
        from headgate.remove import remove as remove_owned

        found = owned_by(declared, with_source=source)
        kinds = {Kind.TABLE, Kind.CHECKPOINT, Kind.NOTE} if tables else set()
        kinds |= {Kind.ENTRY} if catalog else set()
        kinds |= {Kind.TOPIC, Kind.SUBJECT, Kind.SOURCE} if source else set()
        chosen = found.of(*kinds)
        if not as_json:
            _print_owned(declared.name, chosen, found)
        if dry_run or not chosen or not (yes or typer.confirm("Remove all of this for good?")):
            removed: Sequence[Owned] = ()
        else:
            removed = remove_owned(declared, chosen)
    if as_json:
        print_json(
            {
                "owned": chosen,
                "removed": len(removed),
                "shared_with": found.shared_with,
                "left": found.left,
            }
        )
    elif removed:
        print(f"Removed {declared.name}")
        print_next_steps([(f"headgate run {file}", "land everything again")])
    elif chosen:
        print("Nothing was removed")


def _print_owned(name: str, chosen: Sequence[Owned], found: Ownership) -> None:
    if not chosen:
        print(f"{name} owns nothing of this")
    for kind in dict.fromkeys(one.kind for one in chosen):
        some = [one for one in chosen if one.kind is kind]
        names = ", ".join(printable(one.name) for one in some[:_MAX_NAMES])
        more = f" and {len(some) - _MAX_NAMES} more" if len(some) > _MAX_NAMES else ""
        plural = "catalog entries" if kind == "catalog entry" else f"{kind}s"
        what = counted(len(some), str(kind), plural)
        files = sum(one.files for one in some)
        amount = f" ({counted(files, 'file')}, {size(sum(one.bytes for one in some))})"
        print(f"{styled(what, 'bold')}{amount if files else ''}: {names}{more}")
    for shared in found.left:
        print(f"Stays: {shared.kind} {printable(shared.name)}: {printable(shared.why)}")
