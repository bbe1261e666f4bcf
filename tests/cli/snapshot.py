"""Snapshots of what commands print: wording is reviewed like code.

`UPDATE_SNAPSHOTS=1 make test ARGS=tests/cli` rewrites the files.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_FOLDER = Path(__file__).with_name("snapshots")
_VARIES = {
    r"\d\d\d\d-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?(?:\+00:00)?": "<time>",
    r"\b\d\d:\d\d:\d\d\b": "<time>",
    r" +(?:\d+\.\d kB|\d\d\d bytes)": " <size>",
    r" +SIZE  VERSION": " SIZE  VERSION",
}


class Snapshot:
    """Compares text with the file of the same name."""

    def __init__(self, name: str, places: dict[str, str]) -> None:
        self._file = _FOLDER / f"{re.sub(r'[^a-z0-9_]+', '_', name.lower()).strip('_')}.txt"
        self._places = places

    def also(self, place: object, name: str) -> Snapshot:
        """Show a path of this machine by another name."""
        self._places[str(place)] = name
        return self

    def check(self, text: str) -> None:
        for place, name in sorted(self._places.items(), key=lambda each: -len(each[0])):
            text = text.replace(place, name)
        for pattern, instead in _VARIES.items():
            text = re.sub(pattern, instead, text)
        if os.environ.get("UPDATE_SNAPSHOTS"):
            self._file.write_text(text, "utf-8")
        assert self._file.is_file(), f"{self._file} is missing: run with UPDATE_SNAPSHOTS=1"
        assert text == self._file.read_text("utf-8")
