"""A JSON object an event, for programs."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Self

from headgate.cli.json_output import plain, print_json_line
from headgate.cli.progress.tally import Tally
from headgate.land.event import Event, Idle, SchemaChanged

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
