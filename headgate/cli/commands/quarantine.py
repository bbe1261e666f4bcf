"""`headgate quarantine`: records that could not land."""

from __future__ import annotations

from typing import Annotated

import typer

from headgate.cli.find_pipeline import (
    PipelineArgument,
    find_pipeline,
    load_named,
    split_arguments,
)
from headgate.cli.json_output import print_json
from headgate.cli.next_steps import print_next_steps
from headgate.cli.show_quarantined import print_record_list, print_records
from headgate.errors import UsageError

app = typer.Typer(
    rich_markup_mode=None,
    help="Look at records that could not land, and why.",
)
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_records(
    pipeline: PipelineArgument = None,
    reason: Annotated[str | None, typer.Option(help="Only those with this reason.")] = None,
    route: Annotated[
        str | None, typer.Option("--route", "--table", help="Only those of this route or table.")
    ] = None,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, help="At most so many, newest batch first.")
    ] = 20,
    as_json: _Json = False,
) -> None:
    """List records in quarantine, those of the newest batch first.

    \b
      headgate quarantine list games.yaml
      headgate quarantine list games.yaml --reason schema_unknown --limit 100

    Next: headgate quarantine show PIPELINE RECORD
    """
    if reason is not None:
        _require_reason(reason)
    from headgate.inspect import read_quarantined
    from headgate.pipeline import load_pipeline

    file = find_pipeline(pipeline)
    records, total = read_quarantined(load_pipeline(file), reason=reason, route=route, limit=limit)
    if as_json:
        print_json({"total": total, "records": records})
        return
    if not records:
        print("No record is in quarantine" + (" for that" if reason or route else ""))
        return
    print_record_list(records, total)
    if records[0].position:
        show_one = f"headgate quarantine show {file} {records[0].position}"
        print_next_steps([(show_one, "all about one")])


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
        typer.Argument(metavar="RECORD", help="topic:partition:offset", show_default=False),
    ] = None,
    as_json: _Json = False,
) -> None:
    """Show all about one record in quarantine, with its bytes.

    \b
      headgate quarantine show games.yaml games:0:12

    Next: headgate quarantine list PIPELINE --reason …
    """
    from headgate.inspect import Position, find_quarantined

    pipeline, record = split_arguments(first, second)
    if record is None:
        raise UsageError(
            "bad-argument", "name a record", hint="headgate quarantine list shows them"
        )
    position = Position.parse(record)
    found = find_quarantined(load_named(pipeline), position)
    if as_json:
        print_json(found)
        return
    print_records(found)


def _require_reason(reason: str) -> None:
    from headgate.pipeline.wording import did_you_mean, listed
    from headgate.quarantine.reason import Reason

    known = [each.value for each in Reason]
    if reason not in known:
        hint = did_you_mean(reason, known) or f"there are {listed(known)}"
        raise UsageError("bad-argument", f"there is no reason `{reason}`", hint=hint)
