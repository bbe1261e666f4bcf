"""A line an event, for logs."""

from __future__ import annotations

from datetime import datetime
from typing import Self

from headgate.cli.amounts import counted, lasted, number, rate
from headgate.cli.progress.tally import Tally
from headgate.cli.styled import printable
from headgate.land.event import (
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
from headgate.schema.change import CreateTable

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
        return isinstance(event.change, CreateTable) and not event.change.withheld

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
            return f"batch {event.batch}: {event.table}: {event.change.told}{ids}"
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
        f"{counted(event.tables, 'table')} in {lasted(event.seconds)} "
        f"({rate(event.rows + bad, event.seconds)}){quarantined}{lag}"
    )


def _say(text: str) -> None:
    print(f"{datetime.now():%Y-%m-%d %H:%M:%S}  {printable(text)}", flush=True)
