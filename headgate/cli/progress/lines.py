"""A line an event, for logs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Self

from headgate.cli.output import (
    counted,
    lasted,
    number,
    plain,
    print_facts,
    print_json_line,
    printable,
    rate,
    styled,
)
from headgate.cli.progress.tally import Tally
from headgate.engine.events import (
    BatchLanded,
    BatchSkipped,
    Event,
    ExpectationsBroken,
    FilesWait,
    GoldDerived,
    GoldFailed,
    Idle,
    MergeFailed,
    SchemaChanged,
    Started,
    TablesMerged,
    TableWaits,
    WithoutKey,
)
from headgate.schema.changes import CreateTable

_NAMED_TABLES = 3


class Lines:
    """Says each thing once: idleness when it begins, new tables of a batch together."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self._was_idle = False
        self._new_tables: list[str] = []

    def __enter__(self) -> Self:
        _say("starting Spark")
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def note(self, what: str, detail: str = "") -> None:
        _say(f"{what}: {detail}" if detail else what)

    def __call__(self, event: Event) -> None:
        self.tally.take(event)
        if isinstance(event, SchemaChanged) and self._is_made(event):
            if self.tally.is_new_table(event):
                self._new_tables.append(event.table)
            return
        if isinstance(event, BatchLanded):
            self._say_new_tables(event.batch)
        if not (isinstance(event, Idle) and self._was_idle):
            text = _text(event)
            if text:
                _say(text)
        self._was_idle = isinstance(event, Idle)

    def _is_made(self, event: SchemaChanged) -> bool:
        return isinstance(event.change, CreateTable) and not event.change.is_blocked

    def _say_new_tables(self, batch: int) -> None:
        new, self._new_tables = self._new_tables, []
        if new:
            named = ", ".join(new[:_NAMED_TABLES])
            more = f" and {len(new) - _NAMED_TABLES} more" if len(new) > _NAMED_TABLES else ""
            _say(f"batch {batch}: {counted(len(new), 'new table')}: {named}{more}")


def _text(event: Event) -> str | None:
    match event:
        case Started():
            again = f", going on at batch {event.resumed_at}" if event.resumed_at else ""
            return f"running {event.pipeline} into {event.lake}{again}"
        case BatchLanded():
            return _batch(event)
        case BatchSkipped():
            return f"batch {event.batch}: landed before, skipped"
        case SchemaChanged():
            ids = f" (schema {', '.join(map(str, event.schema_ids))})" if event.schema_ids else ""
            return f"batch {event.batch}: {event.table}: {event.change.summary}{ids}"
        case ExpectationsBroken():
            return f"batch {event.batch}: {_broken(event)}"
        case TableWaits():
            rows = counted(event.rows, "record")
            return f"batch {event.batch}: {event.table} waits with {rows}: {event.error}"
        case TablesMerged():
            rows = f"{number(event.inserted)} in, {number(event.updated)} changed, "
            spark = f", {event.by_spark} of them by Spark" if event.by_spark else ""
            return (
                f"merged {counted(event.tables, 'table')} in {lasted(event.seconds)}: {rows}"
                f"{number(event.deleted)} out{spark}"
            )
        case MergeFailed():
            return f"{event.table} is not merged, tried again with the next merge: {event.error}"
        case GoldDerived():
            rows = counted(event.rows, "row")
            return f"derived {rows} of {counted(event.tables, 'table')} in {lasted(event.seconds)}"
        case GoldFailed():
            return f"{event.table} is not derived, tried again with the next batch: {event.error}"
        case WithoutKey():
            return f"{event.table} {event.told}"
        case FilesWait(paths=paths):
            more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
            return f"still being written: {paths[0]}{more}"
        case Idle():
            return "idle: caught up with the source"
        case _:
            return None


def _broken(event: ExpectationsBroken) -> str:
    """The rules that were broken most often, by name."""
    worst = sorted(event.rules, key=lambda one: -one.failed)
    named = ", ".join(
        f"{one.table} {one.rule} {number(one.failed)} of {number(one.checked)} ({one.on_fail})"
        for one in worst[:_NAMED_TABLES]
    )
    more = f" and {len(worst) - _NAMED_TABLES} more" if len(worst) > _NAMED_TABLES else ""
    return f"rows that break rules: {named}{more}"


def _batch(event: BatchLanded) -> str:
    bad = sum(event.quarantined.values())
    quarantined = f", {number(bad)} quarantined" if bad else ""
    lag = f", {number(event.lag)} behind" if event.lag else ""
    return (
        f"batch {event.batch}: {counted(event.rows, 'record')} into "
        f"{counted(event.tables, 'table')} in {lasted(event.landing_seconds)} "
        f"({rate(event.records, event.landing_seconds)}){quarantined}{lag}"
    )


def _say(text: str) -> None:
    print(f"{datetime.now():%Y-%m-%d %H:%M:%S}  {printable(text)}", flush=True)


_HUMP = re.compile(r"(?<!^)(?=[A-Z])")


class JsonLines:
    """Every event as it is; idleness only when it begins."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self._was_idle = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def note(self, what: str, detail: str = "") -> None:
        print_json_line({"event": "note", "at": _now(), "what": what, "detail": detail})

    def __call__(self, event: Event) -> None:
        self.tally.take(event)
        if not (isinstance(event, Idle) and self._was_idle):
            print_json_line({"event": event_name(event), "at": _now(), **_parts(event)})
        self._was_idle = isinstance(event, Idle)


def event_name(event: Event) -> str:
    """`BatchLanded` is `batch_landed`."""
    return _HUMP.sub("_", type(event).__name__).lower()


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
            *_rules_broken(tally),
            ("tables", f"{number(len(tally.tables))}{new}"),
            *_derived(tally),
            ("schema changes", _changes(tally)),
            *(("", printable(f"{each.what}  {each.detail}")) for each in tally.schema_changes),
            *_landing_rate(tally),
            *more,
            ("took", f"{lasted(tally.seconds)}, {counted(tally.batches, 'batch', 'batches')}"),
            ("lake", tally.lake),
        ]
    )


def _derived(tally: Tally) -> list[tuple[str, str]]:
    if tally.last_gold is None:
        return []
    tables, took = counted(tally.last_gold.tables, "table"), lasted(tally.last_gold.seconds)
    return [("derived", f"{tables}, updated in {took} after the last batch")]


def _rules_broken(tally: Tally) -> list[tuple[str, str]]:
    """The rules that rows broke, one a line."""
    rules = [
        f"{rule}, {counted(count, 'row')} ({what})"
        for (rule, what), count in tally.broken.most_common()
    ]
    return [("" if number else "rules broken", rule) for number, rule in enumerate(rules)]


def _changes(tally: Tally) -> str:
    withheld = f", {number(tally.withheld)} withheld by the contract" if tally.withheld else ""
    more = tally.changes + tally.withheld > len(tally.schema_changes)
    return f"{number(tally.changes)}{withheld}{', the last ones:' if more else ''}"


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
