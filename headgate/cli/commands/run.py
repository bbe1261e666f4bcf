"""`headgate run`: land a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headgate.cli.output import counted, print_json_line, print_next_steps, printable
from headgate.cli.pipeline_argument import PipelineArgument, find_pipeline
from headgate.errors import UsageError

if TYPE_CHECKING:
    from headgate.cli.progress.tally import Tally
    from headgate.config import Pipeline
    from headgate.inspect.status import GoldTable, PendingTable

_SHOWN = 5


def run(
    pipeline: PipelineArgument = None,
    once: Annotated[
        bool, typer.Option("--once", help="Land what the source has now, then end.")
    ] = False,
    trigger: Annotated[
        str | None,
        typer.Option(
            help="How often to look for new records, instead of what the pipeline says: 5s, 500ms."
        ),
    ] = None,
    replay: Annotated[
        bool,
        typer.Option("--replay", help="Go on where the ledger ends, with a new, empty checkpoint."),
    ] = False,
    progress: Annotated[
        str, typer.Option(metavar="auto|live|lines|none", help="What to show meanwhile.")
    ] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object an event.")] = False,
) -> None:
    """Land records; new tables and columns need no restart.

    \b
      headgate run games.yaml             until Ctrl-C, which finishes the batch first
      headgate run games.yaml --once      what is there now, then end

    Every record lands exactly once, or in quarantine.

    Next: headgate status PIPELINE
    """
    from headgate.cli.pipeline_argument import quiet_spark
    from headgate.cli.progress.live import choose_view
    from headgate.cli.progress.tally import Tally
    from headgate.config import load_pipeline
    from headgate.inspect.tables import landed_tables

    file = find_pipeline(pipeline)
    declared = load_pipeline(file)
    milliseconds = _milliseconds(trigger) if trigger else None
    tally = Tally.of(declared, landed_tables(declared))
    view = choose_view(progress, tally, as_json)
    with quiet_spark(), view:
        from headgate.engine.runner import RunOptions
        from headgate.run import run_pipeline
        from headgate.sources.stop_signal import StopSignal

        stop = StopSignal()
        tally.stop_asked = lambda: stop.asked
        ended = run_pipeline(declared, RunOptions(once, replay, milliseconds), view, stop)
    waiting, behind = _waiting(declared), _not_derived(declared)
    if as_json:
        summary = _summary(tally, ended.stopped, waiting, behind)
        print_json_line({"ok": not (waiting or behind), "data": summary})
    else:
        _print_end(file, tally, ended.stopped, waiting, behind)
    if waiting or behind:
        raise typer.Exit(1)


def _milliseconds(trigger: str) -> int:
    from headgate.config import Duration, InvalidPipeline

    try:
        return Duration.parse(trigger).milliseconds
    except InvalidPipeline as error:
        raise UsageError("bad-argument", f"--trigger: {error.message}", error.hint) from None


def _waiting(pipeline: Pipeline) -> tuple[PendingTable, ...]:
    from headgate.inspect.ledger import open_ledger
    from headgate.inspect.status import pending_tables

    return pending_tables(open_ledger(pipeline).stream)


def _not_derived(pipeline: Pipeline) -> list[GoldTable]:
    """Derived tables that could not follow what they are derived from."""
    from headgate.inspect.ledger import open_ledger
    from headgate.inspect.status import read_gold

    if not pipeline.gold:
        return []
    return [one for one in read_gold(pipeline, open_ledger(pipeline)) if one.error is not None]


def _summary(
    tally: Tally, stopped: bool, waiting: tuple[PendingTable, ...], behind: list[GoldTable]
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
        "waiting": waiting,
        "not_derived": [{"table": one.table, "error": one.error} for one in behind],
    }


def _print_end(
    file: str,
    tally: Tally,
    stopped: bool,
    waiting: tuple[PendingTable, ...],
    behind: list[GoldTable],
) -> None:
    how = "Stopped" if stopped else "Done"
    from headgate.cli.progress.lines import print_summary

    if not tally.batches:
        print(f"{how}: there was nothing new to land")
    else:
        print_summary(how, tally)
    for one in waiting:
        print(f"Waiting: {one.table} with {counted(one.rows, 'record')}: {one.error}")
    for table in behind[:_SHOWN]:
        print(f"Not derived: {table.table}: {printable(table.error or '')}")
    if len(behind) > _SHOWN:
        print(f"and {len(behind) - _SHOWN} more: headgate status {file} --json has all")
    steps = [(f"headgate tables {file}", "what is where")]
    if tally.quarantined:
        steps.append((f"headgate quarantine list {file}", "what could not land, and why"))
    if waiting:
        steps.insert(0, (f"headgate doctor {file}", "why tables wait"))
    print_next_steps(steps)
