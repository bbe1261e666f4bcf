"""Every kind of change under every contract does what the published matrix says."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.config import Mode
from tests.evolution.cases import Case, cases
from tests.evolution.landed import Landed, land_cases

CASES = cases()


def test_matrix_is_large() -> None:
    assert len({case.change for case in CASES}) >= 40


@pytest.mark.parametrize("mode", Mode, ids=str)
def test_every_change_does_what_the_matrix_says(mode: Mode, tmp_path: Path) -> None:
    lake = land_cases(tmp_path, CASES, mode)
    found = {f"{case.format}: {case.change}": _found(lake, case, mode) for case in CASES}
    assert found == {f"{case.format}: {case.change}": _wanted(case, mode) for case in CASES}


def _found(lake: Landed, case: Case, mode: Mode) -> tuple[object, ...]:
    """Return the outcomes, the new row, and the numbers of rows and of quarantined records."""
    rows = lake.rows(case)
    new = None if case.lands(mode) is None else rows[-1]
    return lake.told(case), new, len(rows), lake.quarantined(case)


def _wanted(case: Case, mode: Mode) -> tuple[object, ...]:
    row = case.lands(mode)
    old = int(case.before is not None)
    return case.outcomes(mode), row, old + (row is not None), int(row is None)
