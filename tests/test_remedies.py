from __future__ import annotations

import pytest

from headgate.reasons import Reason, remedy


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_a_way_out(reason: Reason) -> None:
    assert "replay" in remedy(reason.value) or "dropped" in remedy(reason.value)


def test_reason_of_a_newer_version_has_one_too() -> None:
    assert remedy("moon_phase_wrong")
