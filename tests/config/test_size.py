from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.config import Size
from headgate.errors import PipelineFileError


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512", 512),
        ("512 bytes", 512),
        ("64 kB", 64 * 1024),
        ("16 MB", 16 * 1024**2),
        ("16MiB", 16 * 1024**2),
        ("1g", 1024**3),
        ("1.5 GB", 3 * 512 * 1024**2),
        ("2 tb", 2 * 1024**4),
    ],
)
def test_size_parses_number_and_unit(text: str, size: int) -> None:
    assert Size.parse(text) == size


@pytest.mark.parametrize(
    "text", ["", "MB", "-1 MB", "0", "0.1 b", "1 acre", "16 ib", "9000000000 GB"]
)
def test_invalid_size_is_rejected(text: str) -> None:
    with pytest.raises(PipelineFileError):
        Size.parse(text)


@given(st.integers(1, 2**63 - 1))
def test_size_round_trips_as_text(size: int) -> None:
    assert Size.parse(str(Size(size))) == size


def test_size_is_a_number_that_shows_its_unit() -> None:
    size = Size.parse("16 MB")
    assert (size + 1, str(size), f"{size}", repr(size)) == (
        16777217,
        "16 MB",
        "16 MB",
        "Size(16777216)",
    )
    assert pickle.loads(pickle.dumps(size)) == size
