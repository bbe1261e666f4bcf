from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.cdc.order.orders import lineages, order
from tests.cdc.order.metadata import (
    Fields,
    backfill,
    metadata,
    mysql,
    oracle,
    postgresql,
    sqlserver,
)

KNOWN = ["log:mysql-bin", "gtid:0", "oracle", "postgresql", "sqlserver"]
POSITIONS = {
    "log:mysql-bin": mysql("mysql-bin.000014", 4711),
    "gtid:0": mysql("mysql-bin.000014", 4711, gtid="0-1-5"),
    "oracle": oracle(123456, " 0x000135.0001e5e4.0010 ", 7, log_file="/u01/o1_mf_1_212.arc"),
    "postgresql": postgresql("16/CB002DB0"),
    "sqlserver": sqlserver("00000025:00000728:0003"),
}


@pytest.mark.parametrize("lineage", POSITIONS)
@pytest.mark.parametrize("method", ["cdc", "CDC"])
def test_position_identifies_the_database_for_a_generic_read_method(
    lineage: str, method: str
) -> None:
    fields = POSITIONS[lineage]
    generic = metadata([fields | {"read_method": method}])
    assert lineages(generic).to_pylist() == [lineage]
    assert order(generic, KNOWN) == order(metadata([fields]), KNOWN)


def test_generic_and_specific_read_methods_may_be_mixed() -> None:
    fields = list(POSITIONS.values())
    generic = [one | {"read_method": "cdc"} for one in fields]
    other: list[Fields] = [{"read_method": "x"}, {"read_method": None}, backfill(1)]
    orders = order(metadata([*fields, *other, *generic]), KNOWN)
    texts = orders.texts.to_pylist()
    assert texts[: len(fields)] == texts[-len(fields) :]
    assert sorted(orders.unknown) == [len(fields), len(fields) + 1]


def test_backfill_without_a_database_name_is_a_backfill() -> None:
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
def test_sql_server_changes_sort_by_lsn(found: list[tuple[int, int, int]], between: str) -> None:
    fields = [
        sqlserver(between.join((f"{file:08x}", f"{block:08X}", f"{place:04x}")))
        for file, block, place in found
    ]
    texts = order(metadata(fields), KNOWN).texts.to_pylist()
    by_text = sorted(range(len(found)), key=lambda row: texts[row])
    assert [found[row] for row in by_text] == sorted(found)
