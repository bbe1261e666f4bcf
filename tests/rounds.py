"""A small round of a long test in `make test`, and all of it in `make soak`."""

from __future__ import annotations

import pytest


def rounds(small: int, whole: int) -> pytest.MarkDecorator:
    """Give a test the number of its cases."""
    return pytest.mark.parametrize("cases", [small, pytest.param(whole, marks=pytest.mark.soak)])
