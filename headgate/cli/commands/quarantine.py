"""`headgate quarantine`: records that could not land."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.cli.output import counted, print_json, print_next_steps
from headgate.cli.pipeline_argument import PipelineArgument, find_pipeline, split_arguments
from headgate.cli.quarantine import (
    FileOption,
    OffsetOption,
    ReasonOption,
    RouteOption,
    SinceOption,
    UntilOption,
    landing_folder,
    name_of_record,
    print_record_list,
    print_records,
    wanted_records,
)
from headgate.errors import UsageError

if TYPE_CHECKING:
    from headgate.engine.quarantined import QuarantineState

app = typer.Typer(
    rich_markup_mode=None,
    help="Look at records that could not land; replay or drop them.",
)
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_records(
    pipeline: PipelineArgument = None,
    reason: ReasonOption = None,
    route: RouteOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    offset: OffsetOption = None,
    in_file: FileOption = None,
    state: Annotated[
        str | None,
        typer.Option(
            metavar="open|replayed|dropped|all", help="What has become of them: open, if not said."
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="The same as --state all.")] = False,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, help="At most so many, newest batch first.")
    ] = 20,
    as_json: _Json = False,
) -> None:
    """List records in quarantine, those of the newest batch first.

    \b
      headgate quarantine list games.yaml
      headgate quarantine list games.yaml --reason schema_unknown --limit 100
      headgate quarantine list games.yaml --state replayed --since 2026-11-01

    Next: headgate quarantine show PIPELINE RECORD
    """
    from dataclasses import replace

    from headgate.config import load_pipeline
    from headgate.inspect import read_quarantined

    chosen = _state("all" if every else state)
    wanted = replace(wanted_records(reason, route, since, until, offset, in_file), state=chosen)
    file = find_pipeline(pipeline)
    declared = load_pipeline(file)
    records, total = read_quarantined(declared, wanted, limit)
    if as_json:
        print_json({"total": total, "records": records})
        return
    if not records:
        which = "" if chosen is None else f"{chosen} " if chosen != "open" else ""
        print(f"No {which}record is in quarantine" + (" for that" if wanted.is_narrow else ""))
        return
    folder = landing_folder(declared)
    print_record_list(records, total, folder, with_state=chosen is None)
    steps = []
    if records[0].position:
        show_one = f"headgate quarantine show {file} {name_of_record(records[0], folder)}"
        steps.append((show_one, "all about one"))
    if any(each.state == "open" for each in records):
        steps.append((f"headgate quarantine replay {file}", "land them, once the cause is gone"))
    if steps:
        print_next_steps(steps)


@app.command()
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
            metavar="RECORD", help="topic:partition:offset, or file:number.", show_default=False
        ),
    ] = None,
    as_json: _Json = False,
) -> None:
    """Show all about one record in quarantine, with its bytes.

    \b
      headgate quarantine show games.yaml games:0:12
      headgate quarantine show shop.yaml 2026/11/01/12/00/orders.avro:12

    Next: headgate quarantine replay PIPELINE --offset RECORD
    """
    from headgate.config import load_pipeline
    from headgate.inspect import FilePosition, Position, find_quarantined

    pipeline, record = split_arguments(first, second)
    if record is None:
        raise UsageError(
            "bad-argument", "name a record", hint="headgate quarantine list shows them"
        )
    declared = load_pipeline(find_pipeline(pipeline))
    parse = FilePosition.parse if declared.lands_changes else Position.parse
    found = find_quarantined(declared, parse(record))
    if as_json:
        print_json(found)
        return
    print_records(found, landing_folder(declared))


@app.command()
def replay(
    pipeline: PipelineArgument = None,
    reason: ReasonOption = None,
    route: RouteOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    offset: OffsetOption = None,
    in_file: FileOption = None,
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="At most so many, the oldest first.")
    ] = None,
    as_json: _Json = False,
) -> None:
    """Land open records, once what kept them out is gone.

    \b
      headgate quarantine replay games.yaml --reason schema_unknown
      headgate quarantine replay games.yaml --table silver_chess --limit 10

    Each lands exactly once, also if this is cut short and run again. Those that still cannot
    land stay, with the reason of today. The stream may run meanwhile. Tables that follow change
    logs are brought up to them.

    Next: headgate quarantine list PIPELINE
    """
    from contextlib import nullcontext

    from headgate.cli.pipeline_argument import quiet_spark
    from headgate.cli.quarantine import print_replayed, tell_progress
    from headgate.config import load_pipeline

    wanted = wanted_records(reason, route, since, until, offset, in_file)
    file = find_pipeline(pipeline)
    declared = load_pipeline(file)
    from headgate.quarantine.settle import replay_quarantine

    listener = (lambda _: None) if as_json else tell_progress
    with quiet_spark() if declared.commit == "spark" else nullcontext():
        done = replay_quarantine(declared, wanted, listener, limit)
    if as_json:
        print_json(done)
    elif not (done.taken or done.landed or done.waiting or done.completed):
        print("No record is in quarantine" + (" for that" if wanted.is_narrow else ""))
    else:
        print_replayed(file, done)
    if done.waiting:
        raise typer.Exit(1)


@app.command()
def drop(
    pipeline: PipelineArgument = None,
    reason: ReasonOption = None,
    route: RouteOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    offset: OffsetOption = None,
    in_file: FileOption = None,
    every: Annotated[bool, typer.Option("--all", help="Every open record.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: _Json = False,
) -> None:
    """Give up open records: their bytes go for good.

    \b
      headgate quarantine drop games.yaml --reason envelope_undecodable
      headgate quarantine drop games.yaml --offset games:0:12-40 --yes

    Where each came from, when and why it was here stay in the table. The bytes are in its old
    files until Delta's VACUUM removes those.

    Next: headgate quarantine list PIPELINE --state dropped
    """
    from headgate.cli.quarantine import print_dropped
    from headgate.config import load_pipeline

    wanted = wanted_records(reason, route, since, until, offset, in_file)
    if wanted.is_narrow == every:
        raise UsageError(
            "bad-argument",
            "say which records" if not every else "--all goes with no other choice",
            hint="--reason, --route, --since, --until, --offset or --file; or --all for all",
        )
    if not yes and (as_json or not sys.stdin.isatty()):
        raise UsageError("bad-argument", "nobody is here to ask", hint="--yes drops without asking")
    file = find_pipeline(pipeline)
    declared = load_pipeline(file)
    from headgate.quarantine.settle import drop_quarantine

    refused = False

    def confirm(counts: Mapping[str, int]) -> bool:
        nonlocal refused
        refused = not (yes or _confirmed(counts))
        return not refused

    dropped = drop_quarantine(declared, wanted, confirm)
    if as_json:
        print_json({"dropped": dropped})
    elif dropped:
        print_dropped(file, dropped)
    elif refused:
        print("Nothing was dropped")
    else:
        print("No record is in quarantine" + (" for that" if wanted.is_narrow else ""))


def _confirmed(counts: Mapping[str, int]) -> bool:
    from headgate.cli.quarantine import print_reasons

    print_reasons(counts)
    what = counted(sum(counts.values()), "record")
    return bool(typer.confirm(f"Drop {what} for good?"))


def _state(state: str | None) -> QuarantineState | None:
    from headgate.engine.quarantined import QuarantineState
    from headgate.errors import did_you_mean, listed

    if state == "all":
        return None
    known = [each.value for each in QuarantineState]
    if state is not None and state not in known:
        hint = did_you_mean(state, [*known, "all"]) or f"there are {listed([*known, 'all'])}"
        raise UsageError("bad-argument", f"there is no state `{state}`", hint=hint)
    return QuarantineState.OPEN if state is None else QuarantineState(state)
