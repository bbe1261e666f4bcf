from __future__ import annotations

import pytest

from headgate.envelopes.datastream.avro import Portion


@pytest.fixture(params=["at once", "by the letter"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks are read in both ways that there are, however few records they have."""
    small = request.param == "by the letter"
    monkeypatch.setattr(Portion, "is_small", property(lambda _: small))
