from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    """Write a pipeline file into its own folder and return its path."""

    def write_file(text: str) -> Path:
        path = tmp_path / "games.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write_file
