"""`headgate run`: land records or change files."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.amounts import counted
from headgate.cli.output import print_json_line, print_next_steps, printable
from headgate.cli.pipeline_argument import (
    ConfOption,
    PipelineArgument,
    find_pipeline,
    parse_duration,
    quiet_spark,
    with_settings,
)
from headgate.errors import UsageError

if TYPE_CHECKING:
    from headgate.cli.progress.tally import Tally
    from headgate.config import PipelineConfig
    from headgate.inspect.status import GoldTable, PendingTable

_MAX_TABLES = 5


def run(
    pipeline: PipelineArgument = None,
    once: Annotated[
        bool, typer.Option("--once", help="Land what the source has now, then exit.")
    ] = False,
    trigger: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="How often to look for new records: 5s, 500ms.",
            show_default="from the pipeline file",
        ),
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(metavar="N/OF", help="Land one of the pipeline's shards: 2/4."),
    ] = None,
    from_ledger: Annotated[
        bool,
        typer.Option(
            "--from-ledger", help="Start a new checkpoint and continue where the ledger ends."
        ),
    ] = False,
    follow_only: Annotated[
        bool,
        typer.Option(
            "--follow-only",
            help="Read nothing new: only bring merged and derived tables up to date, then exit.",
        ),
    ] = False,
    conf: ConfOption = None,
    progress: Annotated[
        str,
        typer.Option(
            metavar="auto|live|lines|none",
            help="How to show progress.",
            rich_help_panel="Output",
        ),
    ] = "auto",
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON object per event.", rich_help_panel="Output"),
    ] = False,
) -> None:
    """Land records or change files; schema changes need no restart.

    \b
    Examples:
      headgate run games.yaml             until Ctrl-C, which finishes the batch first
      headgate run games.yaml --once      what the source has now, then exit

    Every record lands exactly once, or goes to the quarantine. Exits with 1 if a table is
    pending or could not be derived.

    Next: headgate status PIPELINE
    """
    from headgate.cli.progress.live import choose_progress, choose_view
    from headgate.cli.progress.tally import Tally
    from headgate.config import load_pipeline
    from headgate.config.shards import Shard
    from headgate.engine.session import prepare_pack, start_session

    if follow_only and (once or from_ledger):
        message = "--follow-only reads nothing, so --once and --from-ledger do not apply"
        raise UsageError("bad-argument", message)
    file = find_pipeline(pipeline)
    declared = with_settings(load_pipeline(file), conf or ())
    one_of = Shard.parse(shard) if shard else None
    milliseconds = parse_duration("--trigger", trigger).milliseconds if trigger else None
    progress = choose_progress(progress)
    prepare_pack(declared, partial(print, file=sys.stderr))
    with quiet_spark():
        start_session(declared)
        # Modules are loaded while Java starts.
        from headgate.engine.runner import RunOptions
        from headgate.inspect.tables import landed_tables
        from headgate.run import run_pipeline
        from headgate.sources.stop_signal import StopSignal

        tally = Tally.of(declared, landed_tables(declared))
        with choose_view(progress, tally, as_json) as view:
            stop = StopSignal()
            tally.stop_asked = lambda: stop.requested
            ended = run_pipeline(
                declared,
                RunOptions(once, from_ledger, milliseconds, one_of, follow_only),
                view,
                stop,
            )
    pending, behind = _pending(declared), _not_derived(declared)
    if as_json:
        summary = _summary(tally, ended.stopped, pending, behind)
        print_json_line({"ok": not (pending or behind), "data": summary})
    else:
        _print_end(file, tally, ended.stopped, pending, behind)
    if pending or behind:
        raise typer.Exit(1)


def _pending(pipeline: PipelineConfig) -> tuple[PendingTable, ...]:
    from headgate.inspect.ledger import open_ledger
    from headgate.inspect.status import pending_tables

    return pending_tables(open_ledger(pipeline).stream)


def _not_derived(pipeline: PipelineConfig) -> list[GoldTable]:
    """Return the derived tables that could not be updated."""
    from headgate.inspect.ledger import open_ledger
    from headgate.inspect.status import read_gold

    if not pipeline.gold:
        return []
    return [one for one in read_gold(pipeline, open_ledger(pipeline)) if one.error is not None]


def _summary(
    tally: Tally, stopped: bool, pending: tuple[PendingTable, ...], behind: list[GoldTable]
) -> dict[str, object]:
    return {
        "stopped": stopped,
        "batches": tally.batches,
        "rows": tally.rows,
        "quarantined": tally.quarantined,
        "tables": len(tally.tables),
        "new_tables": tally.new_tables,
        "schema_changes": tally.changes,
        "seconds": round(tally.seconds, 3),
        "landing_seconds": round(tally.landing_seconds, 3),
        "waiting": pending,
        "not_derived": [{"table": one.table, "error": one.error} for one in behind],
    }


def _print_end(
    file: str,
    tally: Tally,
    stopped: bool,
    pending: tuple[PendingTable, ...],
    behind: list[GoldTable],
) -> None:
    from headgate.cli.progress.lines import print_summary

    how = "Stopped" if stopped else "Done"
    if not tally.batches:
        print(f"{how}: nothing new to land")
    else:
        print_summary(how, tally)
    for one in pending:
        rows = counted(one.rows, "record")
        print(f"Pending: {one.table} with {rows}: {printable(one.error)}")
    for table in behind[:_MAX_TABLES]:
        print(f"Not derived: {table.table}: {printable(table.error or '')}")
    if len(behind) > _MAX_TABLES:
        print(f"and {len(behind) - _MAX_TABLES} more: headgate status {file} --json lists all")
    steps = [(f"headgate tables {file}", "rows and columns of each table")]
    if tally.quarantined:
        steps.append((f"headgate quarantine list {file}", "what could not land, and why"))
    if pending:
        steps.insert(0, (f"headgate doctor {file}", "find out why tables are pending"))
    print_next_steps(steps)
