"""A view that stays in place and shows how it stands now."""

from __future__ import annotations

import sys
from typing import Literal, Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headgate.cli.output import counted, lasted, number, printable, rate
from headgate.cli.progress.tally import Tally
from headgate.engine.events import Event
from headgate.errors import UsageError

_A_SECOND = 4
_SHOWN_REASONS = 3
_FIRST_WAIT = {
    "starting": "Spark takes some seconds to start",
    "running": "the first batch takes longer than later ones: Spark compiles what it runs",
    "stopped": "nothing has landed",
    "done": "nothing has landed",
}


class LiveView:
    """Draws the tally four times a second."""

    def __init__(self, tally: Tally, console: Console | None = None) -> None:
        self.tally = tally
        self._console = console or Console(highlight=False)
        self._live = Live(self, console=self._console, refresh_per_second=_A_SECOND, transient=True)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.__exit__(None, None, None)

    def __call__(self, event: Event) -> None:
        self.tally.take(event)

    def note(self, what: str, detail: str = "") -> None:
        self.tally.note(what, detail)

    def __rich__(self) -> RenderableType:
        tally = self.tally
        body = _facts(tally) if tally.batches else Text(f"  {_FIRST_WAIT[tally.phase]}", "dim")
        return Group(_title(tally), body, *_recent(tally))


def _title(tally: Tally) -> Text:
    return Text.assemble(
        (tally.pipeline, "bold"), f" → {tally.lake}  ", (tally.state, "cyan"), "  ",
        (lasted(tally.seconds), "dim"),
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
            f"in {lasted(last.landing_seconds)}"
        )
    facts = [
        ("rate", speed),
        ("records", number(tally.rows)),
        ("last batch", batch),
        ("tables", _with_new(len(tally.tables), tally.new_tables)),
        ("schema changes", number(tally.changes)),
        ("quarantined", _quarantined(tally)),
    ]
    if tally.broken:
        facts.append(("break rules", _broken(tally)))
    if tally.last_merge is not None:
        tables = counted(tally.last_merge.tables, "table")
        took = lasted(tally.last_merge.seconds)
        facts.insert(3, ("merged", f"{counted(tally.merged, 'row')}; last {tables} in {took}"))
    if tally.last_gold is not None:
        tables, took = counted(tally.last_gold.tables, "table"), lasted(tally.last_gold.seconds)
        facts.insert(4, ("derived", f"last {tables} in {took}"))
    if last is not None and last.lag is not None:
        facts.insert(3, ("lag", counted(last.lag, "record")))
    for waiting in tally.waiting.values():
        facts.append(("waiting", f"{waiting.table}: {printable(waiting.error)}"))
    return facts


def _with_new(tables: int, new: int) -> str:
    return f"{number(tables)} ({number(new)} new)" if new else number(tables)


def _quarantined(tally: Tally) -> str:
    if not tally.quarantined:
        return "0"
    reasons = tally.quarantined.most_common(_SHOWN_REASONS)
    named = ", ".join(f"{reason} {number(count)}" for reason, count in reasons)
    more = ", …" if len(tally.quarantined) > _SHOWN_REASONS else ""
    return f"{number(tally.quarantined.total())} ({named}{more})"


def _broken(tally: Tally) -> str:
    rules = tally.broken.most_common(_SHOWN_REASONS)
    named = ", ".join(f"{rule} {number(count)} ({what})" for (rule, what), count in rules)
    return f"{named}, …" if len(tally.broken) > _SHOWN_REASONS else named


def _recent(tally: Tally) -> list[RenderableType]:
    if not tally.recent:
        return []
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    grid.add_column()
    grid.add_column(overflow="fold")
    for happened in list(tally.recent):
        what, detail = printable(happened.what), printable(happened.detail)
        grid.add_row(f"  {happened.at:%H:%M:%S}", Text(what), Text(detail))
    return [Text(), Text("  latest", style="dim"), grid]


Progress = Literal["auto", "live", "lines", "none"]
PROGRESS = ("auto", "live", "lines", "none")


class View(Protocol):
    """Shows a run while it runs."""

    tally: Tally

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def __call__(self, event: Event) -> None: ...

    def note(self, what: str, detail: str = "") -> None:
        """Show something that the run itself does not know."""
        ...


class NoView:
    """Counts and says nothing."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, event: Event) -> None:
        self.tally.take(event)

    def note(self, what: str, detail: str = "") -> None:
        pass


def choose_view(progress: str, tally: Tally, as_json: bool = False) -> View:
    """A live view on a terminal, a line an event elsewhere, unless another is asked for."""
    from headgate.cli.progress.lines import JsonLines, Lines

    if progress not in PROGRESS:
        raise UsageError(
            "bad-argument",
            f"there is no progress `{progress}`",
            hint=f"it can be {', '.join(PROGRESS)}",
        )
    if progress == "none":
        return NoView(tally)
    if as_json:
        return JsonLines(tally)
    if progress == "live" or (progress == "auto" and sys.stdout.isatty()):
        return LiveView(tally)
    return Lines(tally)
