"""Progress for a terminal: a view that is redrawn in place; and the choice of a view."""

from __future__ import annotations

import sys
from typing import Literal, Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headgate.amounts import counted, duration, number, rate
from headgate.cli.output import printable
from headgate.cli.progress.tally import Tally
from headgate.engine.events import Event
from headgate.errors import UsageError

_REFRESHES_PER_SECOND = 4
_MAX_REASONS = 3
_BEFORE_FIRST_BATCH = {
    "starting": "Spark takes a few seconds to start",
    "running": "the first batch takes longer than later ones while Spark warms up",
    "stopped": "nothing has landed",
    "done": "nothing has landed",
}


class LiveView:
    """Draws the tally several times a second."""

    def __init__(self, tally: Tally, console: Console | None = None) -> None:
        self.tally = tally
        self._console = console or Console(highlight=False)
        self._live = Live(
            self, console=self._console, refresh_per_second=_REFRESHES_PER_SECOND, transient=True
        )

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.__exit__(None, None, None)

    def __call__(self, event: Event) -> None:
        self.tally.take(event)

    def note(self, subject: str, message: str = "") -> None:
        self.tally.note(subject, message)

    def __rich__(self) -> RenderableType:
        tally = self.tally
        body = (
            _facts(tally) if tally.batches else Text(f"  {_BEFORE_FIRST_BATCH[tally.phase]}", "dim")
        )
        return Group(_title(tally), body, *_recent(tally))


def _title(tally: Tally) -> Text:
    return Text.assemble(
        (tally.pipeline, "bold"), f" → {tally.lake}  ", (tally.state, "cyan"), "  ",
        (duration(tally.seconds), "dim"),
    )  # fmt: skip


def _facts(tally: Tally) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    grid.add_column(overflow="fold")
    for name, value in _named_facts(tally):
        grid.add_row(f"  {name}", Text(value))
    return grid


def _named_facts(tally: Tally) -> list[tuple[str, str]]:
    last = tally.last
    speed, batch = "-", "none yet"
    if last is not None:
        speed = rate(last.records, last.landing_seconds)
        batch = (
            f"{last.batch}: {counted(last.rows, 'record')} into {counted(last.tables, 'table')} "
            f"in {duration(last.landing_seconds)}"
        )
    facts = [
        ("rate", speed),
        ("records", number(tally.rows)),
        ("last batch", batch),
        ("tables", _with_new(len(tally.tables), tally.new_tables)),
        ("schema changes", number(tally.changes)),
        ("quarantined", _quarantined(tally)),
    ]
    if tally.skipped:
        facts.append(("files not read", number(tally.skipped)))
    if tally.broken:
        facts.append(("rules broken", _broken(tally)))
    if tally.last_merge is not None:
        tables = counted(tally.last_merge.tables, "table")
        took = duration(tally.last_merge.seconds)
        facts.insert(3, ("merged", f"{counted(tally.merged, 'row')}; last {tables} in {took}"))
    if tally.last_gold is not None:
        tables, took = counted(tally.last_gold.tables, "table"), duration(tally.last_gold.seconds)
        facts.insert(4, ("derived", f"last {tables} in {took}"))
    if last is not None and last.lag is not None:
        facts.insert(3, ("lag", counted(last.lag, "record")))
    for waiting in tally.waiting.values():
        facts.append(("pending", f"{waiting.table}: {printable(waiting.error)}"))
    return facts


def _with_new(tables: int, new: int) -> str:
    return f"{number(tables)} ({number(new)} new)" if new else number(tables)


def _quarantined(tally: Tally) -> str:
    if not tally.quarantined:
        return "0"
    reasons = tally.quarantined.most_common(_MAX_REASONS)
    named = ", ".join(f"{reason} {number(count)}" for reason, count in reasons)
    more = ", …" if len(tally.quarantined) > _MAX_REASONS else ""
    return f"{number(tally.quarantined.total())} ({named}{more})"


def _broken(tally: Tally) -> str:
    rules = tally.broken.most_common(_MAX_REASONS)
    named = ", ".join(f"{rule} {number(count)} ({what})" for (rule, what), count in rules)
    return f"{named}, …" if len(tally.broken) > _MAX_REASONS else named


def _recent(tally: Tally) -> list[RenderableType]:
    if not tally.recent:
        return []
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    grid.add_column()
    grid.add_column(overflow="fold")
    for notice in list(tally.recent):
        subject, message = printable(notice.subject), printable(notice.message)
        grid.add_row(f"  {notice.at:%H:%M:%S}", Text(subject), Text(message))
    return [Text(), Text("  latest", style="dim"), grid]


Progress = Literal["auto", "live", "lines", "none"]
PROGRESS = ("auto", "live", "lines", "none")


class View(Protocol):
    """Shows the progress of a run."""

    tally: Tally

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def __call__(self, event: Event) -> None: ...

    def note(self, subject: str, message: str = "") -> None:
        """Show something that is not an event of the run."""
        ...


class NoView:
    """Counts and prints nothing."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, event: Event) -> None:
        self.tally.take(event)

    def note(self, subject: str, message: str = "") -> None:
        pass


def choose_view(progress: str, tally: Tally, as_json: bool = False) -> View:
    """Return the view asked for."""
    from headgate.cli.progress.lines import JsonLines, Lines

    chosen = choose_progress(progress)
    if chosen == "none":
        return NoView(tally)
    if as_json:
        return JsonLines(tally)
    return LiveView(tally) if chosen == "live" else Lines(tally)


def choose_progress(progress: str) -> str:
    """Return `live`, `lines` or `none`; `auto` is live on a terminal and lines elsewhere."""
    if progress not in PROGRESS:
        raise UsageError(
            "bad-argument",
            f"unknown progress `{progress}`",
            hint=f"use one of {', '.join(PROGRESS)}",
        )
    if progress == "auto":
        return "live" if sys.stdout.isatty() else "lines"
    return progress
