"""A view of a run: told every event, from whichever thread it comes."""

from __future__ import annotations

import sys
from typing import Literal, Protocol, Self

from headgate.cli.progress.tally import Tally
from headgate.errors import UsageError
from headgate.land.event import Event

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
    from headgate.cli.progress.json_lines import JsonLines
    from headgate.cli.progress.lines import Lines

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
        from headgate.cli.progress.live import LiveView

        return LiveView(tally)
    return Lines(tally)
