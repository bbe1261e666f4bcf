"""Keys are found, and files that have none of them are ruled out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.lake import key_index
from headgate.lake.key_index import KeyIndex


@pytest.mark.parametrize("many", [0, 10**6])
@given(
    keys=st.lists(st.one_of(st.none(), st.integers(-9, 9)), unique=True, min_size=1),
    sought=st.lists(st.one_of(st.none(), st.integers(-12, 12))),
)
def test_keys_are_found_among_few_and_among_many(
    many: int, keys: list[int | None], sought: list[int | None]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_index, "_MANY", many)
        index = KeyIndex(pa.table({"id": pa.array(keys, pa.int64())}), ["id"])
        found = index.find(pa.table({"id": pa.array(sought, pa.int64())}))
    assert found.tolist() == [keys.index(key) if key in keys else -1 for key in sought]


def test_statistics_of_timestamps_may_be_truncated() -> None:
    """Spark writes those of 12:00:00.000999 as 12:00:00.000."""
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    keys = pa.table({"at": [noon + timedelta(microseconds=999)]})
    assert KeyIndex(keys, ["at"]).may_be_in(noon - timedelta(hours=1), noon, 0)
    assert not KeyIndex(keys, ["at"]).may_be_in(noon - timedelta(hours=2), noon.replace(hour=11), 0)
