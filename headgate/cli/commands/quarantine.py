"""`headgate quarantine`: list, show, replay and drop records that could not land."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.amounts import counted
from headgate.cli.commands.quarantine_output import (
    landing_folder,
    print_dropped,
    print_event,
    print_reasons,
    print_record_list,
    print_records,
    print_replayed,
    record_name,
)
from headgate.cli.help import GroupedOptions
from headgate.cli.output import JsonOption, print_json, print_next_steps, require_prompt
from headgate.cli.pipeline_argument import (
    PipelineArgument,
    find_pipeline,
    quiet_spark,
    split_arguments,
)
from headgate.errors import UsageError

if TYPE_CHECKING:
    from headgate.engine.quarantine_table import QuarantineState
    from headgate.quarantine.filter import QuarantineFilter

app = typer.Typer(
    rich_markup_mode=None,
    help="List, show, replay or drop records that could not land.",
)
_FILTERS = "Filters"
_Reason = Annotated[
    str | None,
    typer.Option(
        "--reason", metavar="REASON", help="Records with this reason.", rich_help_panel=_FILTERS
    ),
]
_Route = Annotated[
    str | None,
    typer.Option(
        "--route",
        "--table",
        metavar="ROUTE",
        help="Records of this route or table.",
        rich_help_panel=_FILTERS,
    ),
]
_Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        help="Quarantined at or after this time: 2026-11-01 or '2026-11-01 12:00', in UTC.",
        rich_help_panel=_FILTERS,
    ),
]
_Until = Annotated[
    str | None,
    typer.Option(
        "--until",
        metavar="TIME",
        help="Quarantined before this time.",
        rich_help_panel=_FILTERS,
    ),
]
_Offset = Annotated[
    str | None,
    typer.Option(
        "--offset",
        metavar="OFFSETS",
        help="topic:partition:offset, or topic:partition:from-to.",
        rich_help_panel=_FILTERS,
    ),
]
_File = Annotated[
    str | None,
    typer.Option(
        "--file",
        metavar="PATH",
        help="Records of this change file: its path or the end of it.",
        rich_help_panel=_FILTERS,
    ),
]


@app.command("list", cls=GroupedOptions)
def list_records(
    pipeline: PipelineArgument = None,
    reason: _Reason = None,
    route: _Route = None,
    since: _Since = None,
    until: _Until = None,
    offset: _Offset = None,
    in_file: _File = None,
    state: Annotated[
        str | None,
        typer.Option(
            metavar="open|replayed|dropped|all",
            help="Records in this state.",
            show_default="open",
            rich_help_panel=_FILTERS,
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Same as --state all.", rich_help_panel=_FILTERS)
    ] = False,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="Maximum number of records.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """List records in quarantine, newest batch first.

    \b
    Examples:
      headgate quarantine list games.yaml
      headgate quarantine list games.yaml --reason schema_unknown --limit 100
      headgate quarantine list games.yaml --state replayed --since 2026-11-01

    Next: headgate quarantine show PIPELINE RECORD
    """
    from headgate.config import load_pipeline
    from headgate.inspect.quarantine import read_quarantined
    from headgate.quarantine.filter import parse_state

    chosen = parse_state("all" if every else state)
    wanted = replace(_filter(reason, route, since, until, offset, in_file), state=chosen)
    file = find_pipeline(pipeline)
    declared = load_pipeline(file)
    records, total = read_quarantined(declared, wanted, limit)
    if as_json:
        print_json({"total": total, "records": records})
        return
    if not records:
        _print_no_records(wanted, chosen)
        return
    folder = landing_folder(declared)
    print_record_list(records, total, folder, with_state=chosen is None)
    steps = []
    if records[0].position:
        show_one = f"headgate quarantine show {file} {record_name(records[0], folder)}"
        steps.append((show_one, "show one record"))
    if any(each.state == "open" for each in records):
        steps.append((f"headgate quarantine replay {file}", "land them, once the cause is fixed"))
    if steps:
        print_next_steps(steps)


@app.command(cls=GroupedOptions)
def show(
    first: PipelineArgument = None,
    second: Annotated[
        str | None,
        typer.Argument(
            metavar="RECORD", help="topic:partition:offset, or file:number.", show_default=False
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show one record in quarantine with its bytes.

    \b
    Examples:
      headgate quarantine show games.yaml games:0:12
      headgate quarantine show shop.yaml 2026/11/01/12/00/orders.avro:12

    Next: headgate quarantine replay PIPELINE --offset RECORD
    """
    from headgate.config import load_pipeline
    from headgate.inspect.quarantine import FilePosition, Position, find_quarantined

    pipeline, record = split_arguments(first, second)
    if record is None:
        raise UsageError(
            "bad-argument", "missing argument RECORD", hint="headgate quarantine list lists records"
        )
    declared = load_pipeline(find_pipeline(pipeline))
    parse = FilePosition.parse if declared.lands_changes else Position.parse
    found = find_quarantined(declared, parse(record))
    if as_json:
        print_json(found)
        return
    print_records(found, landing_folder(declared))


@app.command(cls=GroupedOptions)
def replay(
    pipeline: PipelineArgument = None,
    reason: _Reason = None,
    route: _Route = None,
    since: _Since = None,
    until: _Until = None,
    offset: _Offset = None,
    in_file: _File = None,
    limit: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Maximum number of records, oldest first."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Land open records once the cause is fixed.

    \b
    Examples:
      headgate quarantine replay games.yaml --reason schema_unknown
      headgate quarantine replay games.yaml --table silver_chess --limit 10

    Each record lands exactly once, even if the replay is interrupted and repeated. Records that
    still cannot land stay in quarantine with their current reason. The pipeline may be running.
    Merged and history tables are updated. Exits with 1 if a table is pending.

    Next: headgate quarantine list PIPELINE
    """
    from headgate.config import load_pipeline

    wanted = _filter(reason, route, since, until, offset, in_file)
    file = find_pipeline(pipeline)
    declared = load_pipeline(file)
    from headgate.quarantine.operations import replay_quarantine

    listener = (lambda _: None) if as_json else print_event
    with quiet_spark() if declared.commit == "spark" else nullcontext():
        done = replay_quarantine(declared, wanted, listener, limit)
    if as_json:
        print_json(done)
    elif not (done.taken or done.landed or done.waiting or done.completed):
        _print_no_records(wanted)
    else:
        print_replayed(file, done)
    if done.waiting:
        raise typer.Exit(1)


@app.command(cls=GroupedOptions)
def drop(
    pipeline: PipelineArgument = None,
    reason: _Reason = None,
    route: _Route = None,
    since: _Since = None,
    until: _Until = None,
    offset: _Offset = None,
    in_file: _File = None,
    every: Annotated[
        bool, typer.Option("--all", help="All open records.", rich_help_panel=_FILTERS)
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Drop open records: their bytes are deleted for good.

    \b
    Examples:
      headgate quarantine drop games.yaml --reason envelope_undecodable
      headgate quarantine drop games.yaml --offset games:0:12-40 --yes

    Position, time and reason of each record stay in the table. Its old files keep the bytes
    until Delta's VACUUM removes them.

    Next: headgate quarantine list PIPELINE --state dropped
    """
    from headgate.config import load_pipeline

    wanted = _filter(reason, route, since, until, offset, in_file)
    if wanted.is_narrow == every:
        raise UsageError(
            "bad-argument",
            "--all cannot be combined with filters" if every else "no records selected",
            hint="use --reason, --route, --since, --until, --offset or --file; or only --all",
        )
    if not yes:
        require_prompt("drop", as_json)
    file = find_pipeline(pipeline)
    declared = load_pipeline(file)
    from headgate.quarantine.operations import drop_quarantine

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
        _print_no_records(wanted)


def _confirmed(counts: Mapping[str, int]) -> bool:
    print_reasons(counts)
    what = counted(sum(counts.values()), "record")
    return bool(typer.confirm(f"Drop {what} for good?"))


def _print_no_records(wanted: QuarantineFilter, state: QuarantineState | None = None) -> None:
    which = f"{state} " if state is not None and state != "open" else ""
    matching = " that match" if wanted.is_narrow else ""
    print(f"No {which}records in quarantine{matching}")


def _filter(
    reason: str | None,
    route: str | None,
    since: str | None,
    until: str | None,
    offset: str | None,
    in_file: str | None,
) -> QuarantineFilter:
    from headgate.quarantine.filter import OffsetRange, QuarantineFilter, parse_reason, parse_time

    return QuarantineFilter(
        reason=parse_reason(reason),
        route=route,
        since=parse_time("--since", since),
        until=parse_time("--until", until),
        offsets=None if offset is None else OffsetRange.parse(offset),
        file=in_file,
    )
