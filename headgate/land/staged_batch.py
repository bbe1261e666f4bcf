"""The files of the batch under way, noted before the first of them is committed.

A batch that is run again after a crash commits these very files: whatever has changed meanwhile
(a schema registered, a table made), no record can take another way than the first time.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headgate.land.staged_file import StagedFile


@dataclass(frozen=True)
class StagedBatch:
    """A batch that is staged whole."""

    version: int
    batch: int
    start: Any
    end: Any
    files: tuple[StagedFile, ...]


class StagedBatchNote:
    """Holds one batch, that of a pipeline which was staged last."""

    def __init__(self, lake: str, pipeline: str) -> None:
        self._path = Path(lake, "_staged", f"{pipeline}.json")

    def read(self) -> StagedBatch | None:
        try:
            noted = json.loads(self._path.read_bytes())
        except FileNotFoundError:
            return None
        files = tuple(StagedFile.from_json(file) for file in noted.pop("files"))
        return StagedBatch(**noted, files=files)

    def under_way(self, landed: int | None) -> StagedBatch | None:
        """The noted batch, unless the ledger has it: its tables may have it in part."""
        staged = self.read()
        return staged if staged and (landed is None or staged.version > landed) else None

    def write(self, staged: StagedBatch) -> None:
        noted = {**vars(staged), "files": [file.to_json() for file in staged.files]}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self._path.with_suffix(".part")
        unfinished.write_text(json.dumps(noted))
        os.replace(unfinished, self._path)

    def clear(self) -> None:
        self._path.unlink(missing_ok=True)
