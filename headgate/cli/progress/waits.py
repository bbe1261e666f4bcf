"""The view of the pizza demo: the wait of each store, as once estimated, as predicted, in truth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headgate.cli.progress.live import choose_progress
from headgate.lab.pizza.demo import BROKEN, StoreWait, Waits

_REFRESHES_PER_SECOND = 4
_BARS = " ▁▂▃▄▅▆▇█"
_MINUTES_OF_A_BAR = 60.0
_CLOSE = 5.0
_LINE_EVERY = 10.0
"""Seconds of the demo between two lines, if they are not drawn in place."""


class WaitsView(Protocol):
    """Shows the waits while the demo runs."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def __call__(self, waits: Waits) -> None: ...


class LiveWaits:
    """Draws a table of the stores several times a second."""

    def __init__(self, console: Console | None = None) -> None:
        console = console or Console(highlight=False)
        self._live = Live(console=console, refresh_per_second=_REFRESHES_PER_SECOND)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.__exit__(None, None, None)

    def __call__(self, waits: Waits) -> None:
        self._live.update(waits_table(waits))


class WaitsLines:
    """Prints a line now and then."""

    def __init__(self, speed: float) -> None:
        self._every = speed * _LINE_EVERY
        self._printed: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, waits: Waits) -> None:
        assert waits.at is not None
        now = waits.at.timestamp()
        if self._printed is None or now - self._printed >= self._every:
            self._printed = now
            print(f"{waits.at:%H:%M}  {_line(waits)}", flush=True)


class NoWaits(WaitsLines):
    """Prints nothing."""

    def __call__(self, waits: Waits) -> None:
        pass


def choose_waits_view(progress: str, speed: float) -> WaitsView:
    """Return the view asked for."""
    chosen = choose_progress(progress)
    if chosen == "none":
        return NoWaits(speed)
    return LiveWaits() if chosen == "live" else WaitsLines(speed)


def waits_table(waits: Waits) -> RenderableType:
    at = f"{waits.at:%A %H:%M}" if waits.at else ""
    table = Table(title=f"Wait in minutes, {at}", title_justify="left", title_style="bold")
    table.add_column("store", justify="right")
    for name in ("stale", "live", "true"):
        table.add_column(name, justify="right")
    table.add_column("80 % between", justify="right", style="dim")
    table.add_column("")
    for one in waits.stores:
        table.add_row(
            str(one.store),
            _estimate(one.stale, one.true),
            _estimate(one.live.wait, one.true) if one.live else Text("…", "dim"),
            f"{one.true:.0f}",
            _interval(one),
            Text("oven broken", "yellow") if one.oven_broken else "",
        )
    return Group(table, *_charts(waits.history), Text(_errors(waits), "dim"))


def _estimate(minutes: float, true: float) -> Text:
    """Draw an estimate in green if it is close to the truth, in red if it is not."""
    return Text(f"{minutes:.0f}", "green" if abs(minutes - true) <= _CLOSE else "red")


def _interval(one: StoreWait) -> str:
    if one.live is None or one.live.low is None or one.live.high is None:
        return ""
    return f"{one.live.low:.0f}-{one.live.high:.0f}"


def _charts(history: Sequence[StoreWait]) -> list[Text]:
    """Draw the waits of the store with the broken oven."""
    lines: list[tuple[str, Callable[[StoreWait], float | None]]] = [
        ("true", lambda one: one.true),
        ("live", lambda one: one.live.wait if one.live else None),
        ("stale", lambda one: one.stale),
    ]
    return [
        Text(f"store {BROKEN} {name:>5} {''.join(_bar(value(one)) for one in history)}")
        for name, value in lines
    ]


def _bar(minutes: float | None) -> str:
    if minutes is None:
        return " "
    height = round(minutes / _MINUTES_OF_A_BAR * (len(_BARS) - 1))
    return _BARS[max(0, min(height, len(_BARS) - 1))]


def _line(waits: Waits) -> str:
    broken = next(one for one in waits.stores if one.store == BROKEN)
    live = f"{broken.live.wait:.0f}" if broken.live else "none yet"
    now = f"store {BROKEN}: stale {broken.stale:.0f}, live {live}, true {broken.true:.0f} min"
    if broken.oven_broken:
        now += ", oven broken"
    return f"{now}; {_errors(waits)}" if waits.mean_errors else now


def _errors(waits: Waits) -> str:
    if waits.mean_errors is None:
        return "no predictions yet"
    stale, live = waits.mean_errors
    return f"mean error of all stores: stale {stale:.1f}, live {live:.1f} min"
