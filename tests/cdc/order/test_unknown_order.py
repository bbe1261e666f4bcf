from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.cdc.order.orders import lineages, order
from headgate.envelopes.datastream.changes import METADATA
from headgate.errors import UsageError
from tests.cdc.order.metadata import (
    MYSQL,
    ORACLE,
    POSTGRESQL,
    Fields,
    backfill,
    metadata,
    mysql,
    oracle,
    postgresql,
    sqlserver,
)

KNOWN = ["log:mysql-bin", "oracle", "postgresql", "gtid:0"]
LOG = "mysql-bin.000001"
TOO_BIG = str(10**20)
HUGE = "9" * 1_000_000

UNKNOWN: list[tuple[Fields, str]] = [
    ({"read_method": None}, "read method"),
    ({"read_method": "cdc"}, "read method (cdc)"),
    ({"read_method": "salesforce-cdc"}, "read method (salesforce-cdc)"),
    ({"read_method": "salesforce-backfill"}, "read method"),
    ({"read_method": "cdc", "log_file": "", "lsn": ""}, "read method (cdc)"),
    (sqlserver(None), "lsn"),
    (sqlserver("37:1832:3"), "lsn"),
    (sqlserver("16/CB002DB0"), "lsn"),
    (sqlserver("00000025:00000728:0003", read_method="cdc"), "the lineage sqlserver"),
    ({"read_method": "x-mysql-cdc"}, "read method"),
    ({"read_method": HUGE}, "read method"),
    (mysql(None, 4), "log file"),
    (mysql("", 4), "log file"),
    (mysql("mysql-bin", 4), "log file"),
    (mysql("mysql-bin.index", 4), "log file"),
    (mysql("mysql-bin.-1", 4), "log file"),
    (mysql("mysql-bin.000001\n", 4), "log file"),
    (mysql("mysql\0bin.000001", 4), "log file"),
    (mysql("mysql-bin.٣", 4), "log file"),
    (mysql(f"mysql-bin.{TOO_BIG}", 4), "log file"),
    (mysql(f"{HUGE}.000001", 4), "log file"),
    (mysql(LOG, None), "log position"),
    (mysql(LOG, -4), "log position"),
    (mysql(LOG, None, sort_keys=["1", LOG]), "log position"),
    (mysql(LOG, None, sort_keys=["1", LOG, None]), "log position"),
    (mysql(LOG, None, sort_keys=["1", LOG, "4.5"]), "log position"),
    (mysql(LOG, None, sort_keys=["1", LOG, " 4"]), "log position"),
    (mysql(LOG, None, sort_keys=["1", LOG, TOO_BIG]), "log position"),
    (mysql(LOG, None, sort_keys=["1", LOG, HUGE]), "log position"),
    (mysql("other-bin.000001", 4), "the lineage log:other-bin is not in the list"),
    (mysql(LOG, 4, gtid="0-1-0-1"), "GTID"),
    (mysql(LOG, 4, gtid="3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"), "GTID"),
    (mysql(LOG, 4, gtid="3e11fa47-71ca-11e1-9e33-c80aa9429562:tag:5"), "GTID"),
    (mysql(LOG, 4, gtid=f"0-1-{TOO_BIG}"), "GTID"),
    (mysql(LOG, 4, gtid=HUGE), "GTID"),
    (mysql(LOG, 4, gtid="7-1-5"), "the lineage gtid:7 is not in the list"),
    (mysql(None, None, gtid="0-1-5"), "log file"),
    (mysql(LOG, 4, change_type=None), "change type"),
    (mysql(LOG, 4, change_type="TRUNCATE"), "change type"),
    (mysql(LOG, 4, uuid="a.b"), "uuid"),
    (mysql(LOG, 4, uuid="ü"), "uuid"),
    (mysql(LOG, 4, uuid=HUGE), "uuid"),
    (oracle(None, None, None), "scn"),
    (oracle(-1, None, None), "scn"),
    (oracle(None, None, None, sort_keys=["1", TOO_BIG]), "scn"),
    (oracle(1, "0x1.2", None), "rs_id"),
    (oracle(1, "0x1.2.3.4", None), "rs_id"),
    (oracle(1, "0x1.2.123456789", None), "rs_id"),
    (oracle(1, "x", None), "rs_id"),
    (oracle(1, None, -1), "ssn"),
    (postgresql(None), "lsn"),
    (postgresql("16CB002DB0"), "lsn"),
    (postgresql("123456789/0"), "lsn"),
    (postgresql("G/0"), "lsn"),
    (postgresql("-1/0"), "lsn"),
    (backfill(None), "source time"),
    (backfill(-1), "source time"),
    (backfill(None, sort_keys=["x"]), "source time"),
]


@pytest.mark.parametrize(
    ("fields", "reason"),
    UNKNOWN,
    ids=[f"{row}-{reason}" for row, (_, reason) in enumerate(UNKNOWN)],
)
def test_unknown_order_has_a_reason(fields: Fields, reason: str) -> None:
    orders = order(metadata([fields, mysql(LOG, 4)]), KNOWN)
    assert orders.texts[0].as_py() is None
    assert reason in orders.unknown[0]
    assert len(orders.unknown[0]) < 400
    assert list(orders.unknown) == [0]


def test_rows_of_unknown_order_are_counted_over_all_batches() -> None:
    batch = metadata([mysql(LOG, 4), mysql(None, 4), backfill(None)])
    orders = order(pa.concat_tables([batch, batch.slice(0, 2), batch]), KNOWN)
    assert list(orders.unknown) == [1, 2, 4, 6, 7]
    assert orders.texts.is_null().to_pylist() == [row in orders.unknown for row in range(8)]


@pytest.mark.parametrize("known", [["oracle", "oracle"], [str(n) for n in range(10_001)]])
def test_invalid_list_of_lineages_is_refused(known: list[str]) -> None:
    with pytest.raises(UsageError, match="lineages"):
        order(metadata([]), known)


texts = st.none() | st.text(max_size=6) | st.text("0123456789abcdefx./:- ", max_size=24)
columns = {
    name.name[1:]: texts
    if name.type == pa.string()
    else st.none() | st.lists(texts, max_size=5)
    if pa.types.is_list(name.type)
    else st.none() | st.integers(-(2**62), 2**62)
    for name in METADATA
    if not pa.types.is_boolean(name.type)
}
methods = st.sampled_from([MYSQL, ORACLE, POSTGRESQL, "oracle_dump", "mysql-", None]) | texts
change_types = st.sampled_from(["INSERT", "UPDATE-DELETE"]) | texts
hostile = st.fixed_dictionaries(columns | {"read_method": methods, "change_type": change_types})


@given(st.lists(hostile, max_size=6))
@settings(deadline=None)
@example([mysql(LOG, 4, gtid="0" * 300 + "-1-5")])
def test_any_metadata_gives_an_order_or_a_reason(changes: list[Fields]) -> None:
    fields = metadata(changes)
    orders = order(fields, KNOWN)
    assert len(lineages(fields)) == len(orders.texts) == len(changes)
    for row, text in enumerate(orders.texts.to_pylist()):
        if text is None:
            assert orders.unknown[row]
        else:
            assert row not in orders.unknown
            assert text.isascii()
            assert text.isprintable()
            assert len(text) < 250
