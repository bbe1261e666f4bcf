"""Small tables with as many files as large ones have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headgate.lake import merge


@contextmanager
def merged_as_if(large: bool) -> Iterator[None]:
    """Merge as into tables that are too large for their files to be combined, or not."""
    with pytest.MonkeyPatch.context() as patch:
        if large:
            patch.setattr(merge, "FILE_ROWS", 4)
            patch.setattr(merge, "_MIN_NEAR", 1)
            patch.setattr(merge, "_MAX_NEAR", 0.5)
        yield
