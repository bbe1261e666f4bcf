"""Every kind of change under every contract does what the published matrix says."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from headgate.config import Mode
from tests.evolution.cases import Case, cases
from tests.evolution.landed import Landed, land_cases

CASES = cases()


@pytest.fixture(scope="module")
def landed() -> Iterator[object]:
    with TemporaryDirectory() as folder:

        @cache
        def land(mode: Mode) -> Landed:
            return land_cases(Path(folder, mode), CASES, mode)

        yield land


def test_matrix_is_large() -> None:
    assert len({case.change for case in CASES}) >= 40


@pytest.mark.parametrize("mode", Mode, ids=str)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.format}: {case.change}")
def test_change(case: Case, mode: Mode, landed: object) -> None:
    assert callable(landed)
    lake: Landed = landed(mode)
    assert lake.told(case) == case.outcomes(mode)
    expected = case.lands(mode)
    rows = lake.rows(case)
    if expected is None:
        assert len(rows) == (case.before is not None)
        assert len(lake.quarantined(case)) == 1
    else:
        assert rows[-1] == expected
        assert lake.quarantined(case) == []
