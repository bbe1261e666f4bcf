from __future__ import annotations

import pytest

from headgate.envelopes.datastream.avro import BlockPortion


@pytest.fixture(params=["blocks", "records"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read blocks both as a whole and record by record, regardless of their size."""
    small = request.param == "records"
    monkeypatch.setattr(BlockPortion, "is_small", property(lambda _: small))
