"""`headgate quarantine`: records that could not land."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.cli.amounts import ago, counted, number, size
from headgate.cli.find_pipeline import PipelineArgument, load_named, split_arguments
from headgate.cli.hex_dump import hex_dump
from headgate.cli.json_output import print_json
from headgate.cli.styled import printable, styled
from headgate.cli.text_columns import print_columns, print_facts
from headgate.errors import UsageError

if TYPE_CHECKING:
    from headgate.inspect import QuarantinedRecord

app = typer.Typer(
    rich_markup_mode=None,
    help="Look at records that could not land, and why.",
)
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_HEADERS = ("RECORD", "REASON", "ROUTE", "SCHEMA", "SIZE", "BATCH", "WHEN", "DETAIL")


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

    records, total = read_quarantined(load_named(pipeline), reason=reason, route=route, limit=limit)
    if as_json:
        print_json({"total": total, "records": records})
        return
    if not records:
        print("No record is in quarantine" + (" for that" if reason or route else ""))
        return
    print_columns(_HEADERS, [_row(each) for each in records], right=("SIZE", "BATCH"))
    shown = f"{number(len(records))} of {counted(total, 'record')}"
    print(f"\n{shown}; headgate quarantine show … {_name(records[0])} shows all about one")


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
    _print_records(found)


def _require_reason(reason: str) -> None:
    from headgate.pipeline.wording import did_you_mean, listed
    from headgate.quarantine.reason import Reason

    known = [each.value for each in Reason]
    if reason not in known:
        hint = did_you_mean(reason, known) or f"there are {listed(known)}"
        raise UsageError("bad-argument", f"there is no reason `{reason}`", hint=hint)


def _name(record: QuarantinedRecord) -> str:
    return str(record.position) if record.position else "-"


def _row(record: QuarantinedRecord) -> tuple[str, ...]:
    return (
        _name(record),
        record.reason,
        record.route or "",
        record.schema_id or "",
        "none" if record.value is None else size(len(record.value)),
        str(record.batch),
        ago(record.at),
        record.detail or "",
    )


def _print_records(records: Sequence[QuarantinedRecord]) -> None:
    from headgate.quarantine.reason import Reason

    for record in records:
        print(f"{styled(_name(record), 'bold')} in quarantine")
        texts = {each.value: each.text for each in Reason}
        facts = [
            ("reason", f"{record.reason}: {texts.get(record.reason, '')}"),
            ("detail", printable(record.detail or "")),
            ("route", printable(record.route or "")),
            ("schema id", record.schema_id or ""),
            ("batch", f"{record.batch}, {ago(record.at)}"),
            ("timestamp", record.timestamp.isoformat() if record.timestamp else ""),
            *((f"header {key}", repr(value)) for key, value in record.headers),
            ("key", "none" if record.key is None else repr(record.key)),
            ("value", "none" if record.value is None else size(len(record.value))),
        ]
        print_facts([fact for fact in facts if fact[1]])
        for line in hex_dump(record.value or b""):
            print(f"  {line}")
