"""Merged tables equal the rows of the database, in whatever order its changes arrive."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.lab.shop.datastream import write_changes
from headgate.lab.shop.statement import Change as ShopChange
from headgate.lab.shop.statement import Column
from tests.cdc.change_lake import ChangeLake
from tests.cdc.changes import Case, Change, case
from tests.lake.large_tables import merged_as_if

CASES_AT_ONCE = 250
COLUMNS = (
    Column("case_number", "bigint"),
    Column("id", "bigint"),
    Column("name", "varchar", length=40),
    Column("amount", "bigint"),
)


def as_shop_change(number: int, change: Change) -> ShopChange:
    return ShopChange(
        database="theatre",
        table="seats",
        columns=COLUMNS,
        primary_key=("case_number", "id"),
        kind=change.change_type,  # type: ignore[arg-type]
        values={"case_number": number, "id": change.key, **change.columns},
        log_file=change.log_file,
        log_position=change.log_position,
        at=datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=change.micros),
        backfill=change.is_backfill,
    )


def land_all(lake: ChangeLake, cases: list[Case]) -> None:
    """Land all cases in one table, with separate keys; their n-th batches arrive together."""
    for number in range(max(len(one.batches) for one in cases)):
        changes = [
            as_shop_change(at, change)
            for at, one in enumerate(cases)
            for change in (one.batches[number] if number < len(one.batches) else [])
        ]
        lake.land_files(write_changes(changes, lake.folder / "landing" / str(number)))


any_cases = given(
    seeds=st.lists(
        st.integers(0, 10**9), min_size=CASES_AT_ONCE, max_size=CASES_AT_ONCE, unique=True
    ),
    metadata=st.booleans(),
    large=st.booleans(),
)


@settings(max_examples=1, deadline=None)
@any_cases
def test_hundreds_of_cases(seeds: list[int], metadata: bool, large: bool) -> None:
    assert_merged(seeds, metadata, large)


@pytest.mark.soak
@settings(max_examples=40, deadline=None)
@any_cases
def test_ten_thousand_cases(seeds: list[int], metadata: bool, large: bool) -> None:
    assert_merged(seeds, metadata, large)


def assert_merged(seeds: list[int], metadata: bool, large: bool) -> None:
    cases = [case(seed) for seed in seeds]
    with TemporaryDirectory() as folder, merged_as_if(large):
        lake = ChangeLake(Path(folder), {"merge": {"metadata": metadata}})
        land_all(lake, cases)
        merged = lake.rows("theatre_seats")
    wanted = {
        (number, key): columns
        for number, one in enumerate(cases)
        for key, columns in one.rows.items()
    }
    found = {
        (row["case_number"], row["id"]): {"name": row["name"], "amount": row["amount"]}
        for row in merged
    }
    assert len(found) == len(merged)
    assert found == wanted
