"""What a replay or a drop did, as a person reads it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headgate.cli.amounts import counted, lasted, number
from headgate.cli.next_steps import print_next_steps
from headgate.cli.styled import printable, styled
from headgate.cli.text_columns import print_facts

if TYPE_CHECKING:
    from headgate.land.event import Event
    from headgate.replay.replay_quarantined import Replayed

_MOST_TABLES = 10


def tell_progress(event: Event) -> None:
    """A line a portion, on standard error: the result is what goes on."""
    from headgate.land.event import (
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
    from headgate.quarantine.remedy import remedy

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
