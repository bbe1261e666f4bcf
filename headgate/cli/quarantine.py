"""Records in quarantine as a person reads them: many in a list, or one with its bytes."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.cli.output import (
    ago,
    counted,
    lasted,
    number,
    print_columns,
    print_facts,
    print_next_steps,
    printable,
    size,
    styled,
)
from headgate.errors import UsageError

if TYPE_CHECKING:
    from headgate.config import Pipeline
    from headgate.engine.events import Event
    from headgate.inspect import QuarantinedRecord
    from headgate.quarantine.filter import QuarantineFilter
    from headgate.quarantine.replay import Replayed

_WIDTH = 16
_MOST = 4096


def hex_dump(value: bytes, most: int = _MOST) -> Iterator[str]:
    """Offset, sixteen bytes and their letters a line."""
    for start in range(0, min(len(value), most), _WIDTH):
        row = value[start : start + _WIDTH]
        pairs = row.hex(" ")
        # A gap in the middle helps the eye to count.
        left, right = pairs[: 3 * 8 - 1], pairs[3 * 8 :]
        letters = "".join(chr(each) if 0x20 <= each < 0x7F else "." for each in row)
        yield f"{start:08x}  {left:<23}  {right:<23}  {letters}"
    if len(value) > most:
        yield f"… and {len(value) - most:,} bytes more"


_HEADERS = ("RECORD", "REASON", "ROUTE", "SCHEMA", "SIZE", "BATCH", "WHEN", "DETAIL")


def print_record_list(
    records: Sequence[QuarantinedRecord],
    total: int,
    folder: str = "",
    *,
    with_state: bool = False,
) -> None:
    """Files are named from the folder on that they all are in."""
    headers, rows = list(_HEADERS), [list(_row(each, folder)) for each in records]
    if with_state:
        headers.insert(1, "STATE")
        for row, record in zip(rows, records, strict=True):
            row.insert(1, record.state)
    print_columns(headers, rows, right=("SIZE", "BATCH"))
    print(f"\n{number(len(records))} of {counted(total, 'record')}")


def print_records(records: Sequence[QuarantinedRecord], folder: str = "") -> None:
    from headgate.reasons import Reason

    texts = {each.value: each.text for each in Reason}
    for record in records:
        print(f"{styled(name_of_record(record, folder), 'bold')} {_state(record)}")
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
            ("way out", _way_out(record)),
        ]
        print_facts([fact for fact in facts if fact[1]])
        for line in hex_dump(record.value or b""):
            print(f"  {line}")


def landing_folder(pipeline: Pipeline) -> str:
    """Where all change files of a pipeline are; nothing where it has none."""

    if not pipeline.lands_changes:
        return ""
    return f"{pipeline.change_files.path.rstrip('/')}/"


def name_of_record(record: QuarantinedRecord, folder: str = "") -> str:
    return str(record.position).removeprefix(folder) if record.position else "-"


def _state(record: QuarantinedRecord) -> str:
    when = "" if record.settled_at is None else f" {ago(record.settled_at)}"
    match record.state:
        case "replayed":
            return f"was replayed{when} and has landed"
        case "dropped":
            return f"was dropped{when}"
        case _:
            return "in quarantine"


def _way_out(record: QuarantinedRecord) -> str:
    from headgate.reasons import remedy

    return remedy(record.reason) if record.state == "open" else ""


def _row(record: QuarantinedRecord, folder: str) -> tuple[str, ...]:
    return (
        name_of_record(record, folder),
        record.reason,
        record.route or "",
        record.schema_id or "",
        "none" if record.value is None else size(len(record.value)),
        str(record.batch),
        ago(record.at),
        record.detail or "",
    )


_MOST_TABLES = 10


def tell_progress(event: Event) -> None:
    """A line a portion, on standard error: the result is what goes on."""
    from headgate.engine.events import (
        BatchLanded,
        MergeFailed,
        SchemaChanged,
        TablesMerged,
        TableWaits,
        WithoutKey,
    )

    match event:
        case BatchLanded():
            still = sum(event.quarantined.values())
            stay = f", {number(still)} stay in quarantine" if still else ""
            landed = f"{counted(event.rows, 'record')} into {counted(event.tables, 'table')}"
            line = f"{landed} in {lasted(event.seconds)}{stay}"
        case SchemaChanged():
            line = f"{event.table}: {event.change}"
        case TableWaits():
            line = f"{event.table} waits with {counted(event.rows, 'record')}: {event.error}"
        case TablesMerged():
            line = f"{counted(event.tables, 'table')} merged in {lasted(event.seconds)}"
        case MergeFailed():
            line = f"{event.table} is behind its log: {event.error}"
        case WithoutKey():
            line = f"{event.table} {event.told}"
        case _:
            return
    print(printable(line), file=sys.stderr, flush=True)


def print_replayed(file: str, done: Replayed) -> None:
    if done.completed:
        print("Completed what was cut short before")
    landed, still = sum(done.landed.values()), sum(done.remaining.values())
    print(styled(f"Replayed {counted(done.taken, 'record')}", "bold"))
    facts = [("landed", f"{number(landed)} in {counted(len(done.landed), 'table')}")]
    facts += _counts(done.landed, "tables")
    facts.append(("in quarantine", f"{number(still)} still"))
    facts += _counts(done.remaining, "reasons")
    facts += [
        (styled("waiting", "yellow"), f"{table} with {counted(rows, 'record')}")
        for table, rows in done.waiting.items()
    ]
    if done.merged:
        facts.append(("merged", counted(len(done.merged), "table")))
    facts += [(styled("behind", "yellow"), f"{table} follows later") for table in done.behind]
    print_facts(facts)
    print_next_steps(_next_steps(file, done))


def print_dropped(file: str, dropped: Mapping[str, int]) -> None:
    print(styled(f"Dropped {counted(sum(dropped.values()), 'record')}", "bold"))
    print_facts(_counts(dropped, "reasons"))
    print_next_steps([(f"headgate quarantine list {file}", "what is still open")])


def print_reasons(counts: Mapping[str, int]) -> None:
    print_facts(_counts(counts, "reasons"))


def _counts(counts: Mapping[str, int], things: str) -> list[tuple[str, str]]:
    shown = [("", f"{number(count):>8}  {name}") for name, count in counts.items()]
    if len(shown) <= _MOST_TABLES:
        return shown
    return [*shown[:_MOST_TABLES], ("", f"{'':>8}  and {len(shown) - _MOST_TABLES} more {things}")]


def _next_steps(file: str, done: Replayed) -> list[tuple[str, str]]:
    from headgate.reasons import remedy

    steps = []
    if done.waiting:
        steps.append((f"headgate quarantine replay {file}", "again, once the table can be written"))
    if done.behind:
        steps.append((f"headgate run {file} --once", "merge what replays left behind"))
    if done.landed:
        steps.append((f"headgate tables {file}", "what is where"))
    for reason in list(done.remaining)[:3]:
        steps.append((f"headgate quarantine list {file} --reason {reason}", remedy(reason)))
    return steps or [(f"headgate status {file}", "how it stands")]


ReasonOption = Annotated[
    str | None, typer.Option("--reason", metavar="REASON", help="Only those with this reason.")
]
RouteOption = Annotated[
    str | None,
    typer.Option("--route", "--table", metavar="ROUTE", help="Only those of this route or table."),
]
SinceOption = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        help="Only those put in quarantine since then: 2026-11-01 or '2026-11-01 12:00', in UTC.",
    ),
]
UntilOption = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help="Only those put in quarantine before then."),
]
OffsetOption = Annotated[
    str | None,
    typer.Option(
        "--offset",
        metavar="OFFSETS",
        help="Only these: topic:partition:offset, or topic:partition:from-to.",
    ),
]


FileOption = Annotated[
    str | None,
    typer.Option(
        "--file", metavar="PATH", help="Only those of this change file: its path, or the end of it."
    ),
]


def wanted_records(
    reason: str | None,
    route: str | None,
    since: str | None,
    until: str | None,
    offset: str | None,
    in_file: str | None = None,
) -> QuarantineFilter:
    from headgate.quarantine.filter import OffsetRange, QuarantineFilter

    if reason is not None:
        _require_reason(reason)
    return QuarantineFilter(
        reason=reason,
        route=route,
        since=_moment("--since", since),
        until=_moment("--until", until),
        offsets=None if offset is None else OffsetRange.parse(offset),
        file=in_file,
    )


def _moment(option: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            "bad-argument",
            f"{option}: `{text}` is no time",
            hint="write it like 2026-11-01, '2026-11-01 12:00' or 2026-11-01T12:00+01:00",
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _require_reason(reason: str) -> None:
    from headgate.errors import did_you_mean, listed
    from headgate.reasons import Reason

    known = [each.value for each in Reason]
    if reason not in known:
        hint = did_you_mean(reason, known) or f"there are {listed(known)}"
        raise UsageError("bad-argument", f"there is no reason `{reason}`", hint=hint)
