from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a pipeline file into a folder of its own and says where."""

    def write_file(text: str) -> Path:
        path = tmp_path / "games.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write_file
