"""Lakes to look at, made without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.inspect.small_lake import SmallLake, make_small_lake


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> SmallLake:
    """Landed once; tests only look at it."""
    return make_small_lake(tmp_path_factory.mktemp("small_lake"))


@pytest.fixture
def empty_lake(tmp_path: Path) -> SmallLake:
    return SmallLake(tmp_path)
