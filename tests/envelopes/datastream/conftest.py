from __future__ import annotations

import pytest

from headgate.envelopes.datastream.avro import Portion


@pytest.fixture(params=["blocks", "records"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read blocks both as a whole and record by record, regardless of their size."""
    small = request.param == "records"
    monkeypatch.setattr(Portion, "is_small", property(lambda _: small))
