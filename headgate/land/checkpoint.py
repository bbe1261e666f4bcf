"""What Spark's checkpoint folder says about a stream: who it is and how far it got."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Checkpoint:
    """Reads, never writes: the folder is Spark's."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    @property
    def query_id(self) -> str | None:
        """The identity of the stream; a checkpoint made anew has another one."""
        try:
            return str(json.loads((self.folder / "metadata").read_text())["id"])
        except (OSError, ValueError, KeyError):
            return None

    @property
    def last_begun(self) -> int | None:
        return self._newest("offsets")

    @property
    def last_committed(self) -> int | None:
        return self._newest("commits")

    def start_of(self, batch: int) -> Any:
        """Where the source begins in that batch."""
        if batch > 0:
            return self.offsets(batch - 1)
        try:
            text = (self.folder / "sources" / "0" / "0").read_text()
            return json.loads(text[text.index("{") :])
        except (OSError, ValueError):
            return None

    def offsets(self, batch: int) -> Any:
        """Where the source ends in that batch, in the source's own terms."""
        try:
            lines = (self.folder / "offsets" / str(batch)).read_text().splitlines()
            return json.loads(lines[2])
        except (OSError, ValueError, IndexError):
            return None

    def _newest(self, folder: str) -> int | None:
        try:
            names = [path.name for path in (self.folder / folder).iterdir()]
        except OSError:
            return None
        return max((int(name) for name in names if name.isdigit()), default=None)
