from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.cdc.order.orders import lineages, order
from tests.cdc.order.metadata import Told, backfill, metadata, mysql, oracle, postgresql, sqlserver

KNOWN = ["log:mysql-bin", "gtid:0", "oracle", "postgresql", "sqlserver"]
PLACED = {
    "log:mysql-bin": mysql("mysql-bin.000014", 4711),
    "gtid:0": mysql("mysql-bin.000014", 4711, gtid="0-1-5"),
    "oracle": oracle(123456, " 0x000135.0001e5e4.0010 ", 7, log_file="/u01/o1_mf_1_212.arc"),
    "postgresql": postgresql("16/CB002DB0"),
    "sqlserver": sqlserver("00000025:00000728:0003"),
}


@pytest.mark.parametrize("lineage", PLACED)
@pytest.mark.parametrize("method", ["cdc", "CDC"])
def test_position_tells_the_source_where_the_read_method_does_not(
    lineage: str, method: str
) -> None:
    told = PLACED[lineage]
    plain = metadata([told | {"read_method": method}])
    assert lineages(plain).to_pylist() == [lineage]
    assert order(plain, KNOWN) == order(metadata([told]), KNOWN)


def test_sources_may_be_mixed_with_rows_that_name_theirs() -> None:
    told = list(PLACED.values())
    plain = [one | {"read_method": "cdc"} for one in told]
    other: list[Told] = [{"read_method": "x"}, {"read_method": None}, backfill(1)]
    orders = order(metadata([*told, *other, *plain]), KNOWN)
    texts = orders.texts.to_pylist()
    assert texts[: len(told)] == texts[-len(told) :]
    assert sorted(orders.unknown) == [len(told), len(told) + 1]


def test_backfill_of_no_named_source_is_one() -> None:
    named = backfill(7)
    assert order(metadata([named | {"read_method": "backfill"}]), []) == order(
        metadata([named]), []
    )


places = st.tuples(
    st.integers(0, 2**32 - 1),
    st.integers(0, 300) | st.integers(2**31, 2**32 - 1),
    st.integers(0, 99),
)


@given(st.lists(places, max_size=12), st.sampled_from([":", ""]))
@settings(deadline=None)
def test_sql_server_order_is_that_of_the_lsn_as_numbers(
    found: list[tuple[int, int, int]], between: str
) -> None:
    told = [
        sqlserver(between.join((f"{file:08x}", f"{block:08X}", f"{place:04x}")))
        for file, block, place in found
    ]
    texts = order(metadata(told), KNOWN).texts.to_pylist()
    by_text = sorted(range(len(found)), key=lambda row: texts[row])
    assert [found[row] for row in by_text] == sorted(found)
