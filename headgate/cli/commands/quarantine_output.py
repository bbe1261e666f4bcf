"""How quarantined records, replays and drops are printed."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from headgate.amounts import counted, number, size
from headgate.cli.output import (
    ago,
    print_columns,
    print_facts,
    print_next_steps,
    printable,
    styled,
)

if TYPE_CHECKING:
    from headgate.config import PipelineConfig
    from headgate.engine.events import Event
    from headgate.inspect.quarantine import QuarantinedRecord
    from headgate.quarantine.replay import Replayed

_HEADERS = ("RECORD", "REASON", "ROUTE", "SCHEMA", "SIZE", "BATCH", "WHEN", "DETAIL")
_BYTES_PER_LINE = 16
_MAX_BYTES = 4096
_MAX_COUNTS = 10
_MAX_REASONS = 3


def print_record_list(
    records: Sequence[QuarantinedRecord],
    total: int,
    folder: str = "",
    *,
    with_state: bool = False,
) -> None:
    """Print one record per line; files are named relative to `folder`."""
    headers, rows = list(_HEADERS), [list(_row(each, folder)) for each in records]
    if with_state:
        headers.insert(1, "STATE")
        for row, record in zip(rows, records, strict=True):
            row.insert(1, record.state)
    print_columns(headers, rows, right=("SIZE", "BATCH"))
    print(f"\n{number(len(records))} of {counted(total, 'record')}")


def print_records(records: Sequence[QuarantinedRecord], folder: str = "") -> None:
    """Print each record with everything known about it and a hex dump of its value."""
    from headgate.reasons import Reason, remedy

    texts = {each.value: each.text for each in Reason}
    for record in records:
        print(f"{styled(record_name(record, folder), 'bold')} {_state(record)}")
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
            ("fix", remedy(record.reason) if record.state == "open" else ""),
        ]
        print_facts([fact for fact in facts if fact[1]])
        for line in hex_dump(record.value or b""):
            print(f"  {line}")


def hex_dump(value: bytes, most: int = _MAX_BYTES) -> Iterator[str]:
    """Yield lines of offset, sixteen bytes in hex, and the same as ASCII."""
    for start in range(0, min(len(value), most), _BYTES_PER_LINE):
        row = value[start : start + _BYTES_PER_LINE]
        pairs = row.hex(" ")
        # A gap after eight bytes makes them easier to count.
        left, right = pairs[: 3 * 8 - 1], pairs[3 * 8 :]
        letters = "".join(chr(each) if 0x20 <= each < 0x7F else "." for each in row)
        yield f"{start:08x}  {left:<23}  {right:<23}  {letters}"
    if len(value) > most:
        yield f"… and {len(value) - most:,} bytes more"


def landing_folder(pipeline: PipelineConfig) -> str:
    """Return the folder of a pipeline's change files; empty for a stream."""

    if not pipeline.lands_changes:
        return ""
    return f"{pipeline.change_files.path.rstrip('/')}/"


def record_name(record: QuarantinedRecord, folder: str = "") -> str:
    return str(record.position).removeprefix(folder) if record.position else "-"


def _state(record: QuarantinedRecord) -> str:
    when = "" if record.settled_at is None else f" {ago(record.settled_at)}"
    match record.state:
        case "replayed":
            return f"was replayed{when} and has landed"
        case "dropped":
            return f"was dropped{when}"
        case _:
            return "is in quarantine"


def _row(record: QuarantinedRecord, folder: str) -> tuple[str, ...]:
    return (
        record_name(record, folder),
        record.reason,
        record.route or "",
        record.schema_id or "",
        "none" if record.value is None else size(len(record.value)),
        str(record.batch),
        ago(record.at),
        record.detail or "",
    )


def print_event(event: Event) -> None:
    """Print an event of a replay on standard error; the result goes to standard output."""
    print(printable(event.text), file=sys.stderr, flush=True)


def print_replayed(file: str, done: Replayed) -> None:
    if done.completed:
        print("Completed an interrupted replay first")
    landed, still = sum(done.landed.values()), sum(done.remaining.values())
    print(styled(f"Replayed {counted(done.taken, 'record')}", "bold"))
    facts = [("landed", f"{number(landed)} in {counted(len(done.landed), 'table')}")]
    facts += _counts(done.landed, "tables")
    facts.append(("still in quarantine", number(still)))
    facts += _counts(done.remaining, "reasons")
    facts += [
        (styled("pending", "yellow"), f"{table} with {counted(rows, 'record')}")
        for table, rows in done.waiting.items()
    ]
    if done.merged:
        facts.append(("merged", counted(len(done.merged), "table")))
    facts += [
        (styled("behind", "yellow"), f"{table}; the next run merges it") for table in done.behind
    ]
    print_facts(facts)
    print_next_steps(_next_steps(file, done))


def print_dropped(file: str, dropped: Mapping[str, int]) -> None:
    print(styled(f"Dropped {counted(sum(dropped.values()), 'record')}", "bold"))
    print_reasons(dropped)
    print_next_steps([(f"headgate quarantine list {file}", "records that are still open")])


def print_reasons(counts: Mapping[str, int]) -> None:
    print_facts(_counts(counts, "reasons"))


def _counts(counts: Mapping[str, int], things: str) -> list[tuple[str, str]]:
    shown = [("", f"{number(count):>8}  {name}") for name, count in counts.items()]
    if len(shown) <= _MAX_COUNTS:
        return shown
    return [*shown[:_MAX_COUNTS], ("", f"{'':>8}  and {len(shown) - _MAX_COUNTS} more {things}")]


def _next_steps(file: str, done: Replayed) -> list[tuple[str, str]]:
    from headgate.reasons import remedy

    steps = []
    if done.waiting:
        command = f"headgate quarantine replay {file}"
        steps.append((command, "retry, once the pending table can be written"))
    if done.behind:
        steps.append((f"headgate run {file} --once", "merge the tables that are behind"))
    if done.landed:
        steps.append((f"headgate tables {file}", "rows and columns of each table"))
    for reason in list(done.remaining)[:_MAX_REASONS]:
        steps.append((f"headgate quarantine list {file} --reason {reason}", remedy(reason)))
    return steps or [(f"headgate status {file}", "state of the pipeline")]
