"""Records in quarantine as a person reads them: many in a list, or one with its bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headgate.cli.amounts import ago, counted, number, size
from headgate.cli.hex_dump import hex_dump
from headgate.cli.styled import printable, styled
from headgate.cli.text_columns import print_columns, print_facts

if TYPE_CHECKING:
    from headgate.inspect import QuarantinedRecord
    from headgate.pipeline import ChangePipeline, Pipeline

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
    from headgate.quarantine.reason import Reason

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


def landing_folder(pipeline: Pipeline | ChangePipeline) -> str:
    """Where all change files of a pipeline are; nothing where it has none."""
    from headgate.pipeline import ChangePipeline

    if not isinstance(pipeline, ChangePipeline):
        return ""
    return f"{pipeline.source.path.rstrip('/')}/"


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
    from headgate.quarantine.remedy import remedy

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
