"""`headgate maintain`: combine small files, and delete what no version needs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.amounts import counted, number, size
from headgate.cli.output import JsonOption, print_json, print_next_steps, printable, styled
from headgate.cli.pipeline_argument import (
    PipelineArgument,
    find_pipeline,
    parse_duration,
    quiet_spark,
    split_arguments,
)

if TYPE_CHECKING:
    from headgate.lake.maintain import MaintenanceResult


def maintain(
    pipeline: PipelineArgument = None,
    tables: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TABLE",
            help="Tables by name or pattern; all if none is given.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")
    ] = False,
    at_most: Annotated[
        str | None,
        typer.Option(
            "--for", metavar="TIME", help="Begin no further table after this time, such as `10m`."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Combine small files, and delete what no version needs any more.

    \b
    Examples:
      headgate maintain games.yaml --dry-run
      headgate maintain games.yaml
      headgate maintain games.yaml 'silver_*' --for 10m

    Rows stay as they are, and the pipeline may be running. Versions that are older than
    `maintain.keep`, or more than `maintain.max_versions`, can no longer be read; files left by
    processes that died are deleted. With `maintain: true` in the pipeline file, a run maintains
    its tables itself. Exits with 1 if a table could not be maintained.

    Next: headgate tables PIPELINE
    """
    from headgate.config import load_pipeline

    named, first = split_arguments(pipeline, None)
    wanted = [*([first] if first else []), *(tables or ())]
    file = find_pipeline(named)
    limit = None if at_most is None else parse_duration("--for", at_most)
    declared = load_pipeline(file)

    def show(one: MaintenanceResult) -> None:
        if one.error is not None:
            print(f"{styled(one.table, 'red')}: {printable(one.error)}", flush=True)
        elif one.is_needed:
            print(f"{styled(printable(one.table), 'bold')}: {_text(one)}", flush=True)
        for why, names in _left(one).items():
            some = ", ".join(map(printable, names[:_MAX_NAMES]))
            more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
            print(f"  left alone: {some}{more} ({printable(why)})", flush=True)

    with quiet_spark():
        from headgate.maintain import maintain as maintain_tables

        done = maintain_tables(
            declared,
            wanted or ("*",),
            dry_run=dry_run,
            at_most=limit,
            on_table=(lambda _: None) if as_json else show,
        )
    failed = [one for one in done if one.error is not None]
    if as_json:
        errors = [{"table": one.table, "message": one.error} for one in failed]
        print_json({"dry_run": dry_run, "tables": done}, errors=errors)
    else:
        _print_sum(done, dry_run)
        done_so = (f"headgate tables {file}", "rows, files and sizes")
        print_next_steps([(f"headgate maintain {file}", "do it") if dry_run else done_so])
    if failed:
        raise typer.Exit(1)


def _text(one: MaintenanceResult) -> str:
    parts = []
    if one.compacted.files:
        combined = counted(one.compacted.files, "file")
        by = " by OPTIMIZE of Spark" if one.engine == "spark" else ""
        into = number(one.compacted.into)
        parts.append(f"{combined} of {size(one.compacted.bytes)} → {into}{by}")
    if one.versions:
        parts.append(f"{counted(one.versions, 'old version')}")
    if one.deletions:
        kinds = Counter(file.kind for file in one.deletions)
        what = ", ".join(counted(count, kind, _PLURALS.get(kind)) for kind, count in kinds.items())
        parts.append(f"{counted(one.deleted, 'file')} deleted ({size(one.freed)}): {what}")
    return ", ".join(parts)


_MAX_NAMES = 3
_PLURALS = {
    "log entry": "log entries",
    "change data": "files of change data",
    "changes to merge": "files of changes to merge",
    "link to a staged file": "links to staged files",
}


def _left(one: MaintenanceResult) -> dict[str, list[str]]:
    """Return what is left alone, by the reason."""
    left: dict[str, list[str]] = {}
    for file in one.left:
        left.setdefault(file.why, []).append(file.name)
    return left


def _print_sum(done: list[MaintenanceResult], dry_run: bool) -> None:
    needed = [one for one in done if one.is_needed]
    if not needed:
        print(f"Nothing to do in {counted(len(done), 'table')}")
        return
    files = counted(sum(one.compacted.files for one in needed), "file")
    into = number(sum(one.compacted.into for one in needed))
    deleted, freed = sum(one.deleted for one in needed), sum(one.freed for one in needed)
    text = f"{files} into {into}, {counted(deleted, 'file')} deleted ({size(freed)})"
    tables = f"{counted(len(needed), 'table')} of {number(len(done))}"
    print(f"{tables}: {'would combine' if dry_run else 'combined'} {text}")
