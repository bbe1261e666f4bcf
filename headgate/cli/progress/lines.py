"""Progress for logs: one line per event, or one JSON object; and the summary at the end."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Self

from headgate.amounts import counted, duration, number, rate
from headgate.as_json import plain
from headgate.cli.output import print_facts, print_json_line, printable, styled
from headgate.cli.progress.tally import Tally
from headgate.engine.events import BatchLanded, Ended, Event, Idle, SchemaChanged
from headgate.schema.changes import CreateTable

_MAX_NAMES = 3


class Lines:
    """Prints one line per event; idleness only when it begins, new tables of a batch together."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self._was_idle = False
        self._new_tables: list[str] = []

    def __enter__(self) -> Self:
        _print_line(self.tally.state)
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def note(self, subject: str, message: str = "") -> None:
        _print_line(f"{subject}: {message}" if message else subject)

    def __call__(self, event: Event) -> None:
        self.tally.take(event)
        match event:
            case SchemaChanged(change=CreateTable(is_blocked=False)):
                if self.tally.is_new_table(event):
                    self._new_tables.append(event.table)
                return
            case Ended():
                return
            case BatchLanded():
                self._print_new_tables(event.batch)
        if not (isinstance(event, Idle) and self._was_idle):
            _print_line(event.text)
        self._was_idle = isinstance(event, Idle)

    def _print_new_tables(self, batch: int) -> None:
        new, self._new_tables = self._new_tables, []
        if new:
            names = ", ".join(new[:_MAX_NAMES])
            more = f" and {len(new) - _MAX_NAMES} more" if len(new) > _MAX_NAMES else ""
            _print_line(f"batch {batch}: {counted(len(new), 'new table')}: {names}{more}")


def _print_line(text: str) -> None:
    print(f"{datetime.now():%Y-%m-%d %H:%M:%S}  {printable(text)}", flush=True)


_WORD_START = re.compile(r"(?<!^)(?=[A-Z])")


class JsonLines:
    """Prints one JSON object per event; idleness only when it begins."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self._was_idle = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def note(self, subject: str, message: str = "") -> None:
        print_json_line({"event": "note", "at": _now(), "what": subject, "detail": message})

    def __call__(self, event: Event) -> None:
        self.tally.take(event)
        if not (isinstance(event, Idle) and self._was_idle):
            print_json_line({"event": event_name(event), "at": _now(), **_parts(event)})
        self._was_idle = isinstance(event, Idle)


def event_name(event: Event) -> str:
    """Return the name of an event in JSON: `batch_landed` for `BatchLanded`."""
    return _WORD_START.sub("_", type(event).__name__).lower()


def _parts(event: Event) -> dict[str, object]:
    parts: dict[str, object] = plain(event)
    if isinstance(event, SchemaChanged):
        parts["change"] = event.change.as_record()
    return parts


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def print_summary(headline: str, tally: Tally, more: Sequence[tuple[str, str]] = ()) -> None:
    """Print what a run did, how fast, and where the tables are; `more` follows the rate."""
    print(styled(headline, "bold"))
    new = f" ({number(tally.new_tables)} new)" if tally.new_tables else ""
    print_facts(
        [
            ("records", f"{number(tally.rows)} landed"),
            ("quarantined", number(tally.quarantined.total())),
            *([("files not read", number(tally.skipped))] if tally.skipped else []),
            *_rules_broken(tally),
            ("tables", f"{number(len(tally.tables))}{new}"),
            *_derived(tally),
            ("schema changes", _changes(tally)),
            *(("", printable(f"{each.subject}  {each.message}")) for each in tally.schema_changes),
            *_landing_rate(tally),
            *more,
            ("took", f"{duration(tally.seconds)}, {counted(tally.batches, 'batch', 'batches')}"),
            ("lake", tally.lake),
        ]
    )


def _derived(tally: Tally) -> list[tuple[str, str]]:
    if tally.last_gold is None:
        return []
    tables, took = counted(tally.last_gold.tables, "table"), duration(tally.last_gold.seconds)
    return [("derived", f"{tables} updated after the last batch in {took}")]


def _rules_broken(tally: Tally) -> list[tuple[str, str]]:
    """The rules that rows broke, one per line."""
    rules = [
        f"{rule}, {counted(count, 'row')} ({what})"
        for (rule, what), count in tally.broken.most_common()
    ]
    return [("" if position else "rules broken", rule) for position, rule in enumerate(rules)]


def _changes(tally: Tally) -> str:
    blocked = f", {number(tally.withheld)} blocked by the contract" if tally.withheld else ""
    more = tally.changes + tally.withheld > len(tally.schema_changes)
    return f"{number(tally.changes)}{blocked}{', most recent:' if more else ''}"


def _landing_rate(tally: Tally) -> list[tuple[str, str]]:
    """The rate of staging and committing: what follows a commit is not landing."""
    overall = rate(tally.records, tally.landing_seconds)
    measured = "staging and commits, without deriving or merging"
    facts = [("landing rate", f"{overall}: {measured}")]
    if tally.fastest is not None and tally.batches > 1:
        fastest = rate(tally.fastest.records, tally.fastest.landing_seconds)
        size = counted(tally.fastest.records, "record")
        facts.append(("", f"{fastest} in the fastest batch, of {size}"))
    return facts
