from __future__ import annotations

from random import Random

import pytest

from headgate.cdc.order.orders import order
from headgate.cdc.order.positions import position_order
from headgate.errors import UsageError
from tests.cdc.order.metadata import Fields, metadata, mysql, oracle, postgresql, sqlserver

SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
KNOWN = ["log:mysql-bin", f"gtid:{SERVER}", "gtid:0", "oracle", "postgresql", "sqlserver"]


@pytest.mark.parametrize(
    ("typed", "last", "following"),
    [
        ("mysql-bin.000014:4711", mysql("mysql-bin.000014", 4711), mysql("mysql-bin.14", 4712)),
        ("mysql-bin.999999:9", mysql("mysql-bin.999999", 9), mysql("mysql-bin.1000000", 4)),
        (
            f"{SERVER.upper()}:23",
            mysql("mysql-bin.2", 2**63 - 1, gtid=f"{SERVER}:23"),
            mysql("mysql-bin.1", 4, gtid=f"{SERVER}:24"),
        ),
        ("0-1-9", mysql("x.9", 9, gtid="0-2-9"), mysql("x.1", 4, gtid="0-1-10")),
        ("scn:99", oracle(99, "0xffffffff.ffffffff.ffffffff", 2**63 - 1), oracle(100, None, None)),
        (" 16/CB002DB0\n", postgresql("16/cb002db0"), postgresql("16/CB002DB1")),
        (
            "00000025:0000072a:0003",
            sqlserver("0x000000250000072A0003"),
            sqlserver("00000025:0000072A:0004"),
        ),
    ],
)
def test_position_includes_all_changes_at_it_and_none_after(
    typed: str, last: Fields, following: Fields
) -> None:
    last |= {"change_type": "DELETE", "uuid": "z" * 64}
    following |= {"change_type": "UPDATE-DELETE", "uuid": ""}
    at, after = order(metadata([last, following]), KNOWN).texts.to_pylist()
    assert at <= position_order(typed, KNOWN) < after


@pytest.mark.parametrize(
    "typed",
    [
        "",
        "4711",
        "mysql-bin:4711",
        "mysql-bin.000014",
        "mysql-bin.000014:-1",
        f"mysql-bin.000014:{10**20}",
        "scn:",
        "scn:0x1",
        "16/CB002DB0/1",
        "37:1832:3",
        "00000025:00000728",
        "2026-11-15 10:00",
        "3e11fa47:23",
        "x" * 1_000_000,
        f"{'x' * 1_000}.1:4",
    ],
)
def test_text_that_is_not_a_position_is_refused(typed: str) -> None:
    with pytest.raises(UsageError) as refused:
        position_order(typed, KNOWN)
    assert refused.value.code == "bad-argument"
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize("typed", ["mysql-bin.1:4", "scn:1", "0/1", "0-1-5", f"{SERVER}:1"])
def test_position_of_a_lineage_without_changes_is_refused(typed: str) -> None:
    with pytest.raises(UsageError, match="Known lineages: log:binlog") as refused:
        position_order(typed, ["log:binlog"])
    assert refused.value.code == "bad-argument"


def test_positions_divide_the_orders_of_random_changes() -> None:
    random = Random(3)
    places = [(random.randrange(2), random.choice((9, 10, 999_999))) for _ in range(200)]
    fields = metadata([mysql(f"mysql-bin.{file}", position) for file, position in places])
    texts = order(fields, KNOWN).texts.to_pylist()
    for file, position in set(places):
        limit = position_order(f"mysql-bin.{file:06}:{position}", KNOWN)
        for place, text in zip(places, texts, strict=True):
            assert (text <= limit) == (place <= (file, position))
