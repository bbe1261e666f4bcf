"""Queries that go on: rows so far, then every change, once and in order."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from headgate.errors import HeadgateError
from headgate.lake.query import python_rows
from headgate.serve.push import Change, PushQuery
from tests.serve.conftest import QueryLake

ORDERS = "silver_pizza_orders_avro"
REFERENCE = """
SELECT *
FROM  PIZZA_ORDERS_AVRO
WHERE STORE_ID=2
EMIT CHANGES;
"""


def orders(*numbers: int, store: int = 2, **more: Any) -> list[dict[str, Any]]:
    return [{"store_id": store, "store_order_id": number, **more} for number in numbers]


def numbers(changes: list[Change]) -> list[int]:
    return [change.row["store_order_id"] for change in changes]


def test_statement_of_the_reference_gives_rows_so_far_and_new_ones(lake: QueryLake) -> None:
    lake.append(ORDERS, orders(1, 2) + orders(7, store=3))
    reader = lake.query(REFERENCE)
    assert numbers(reader.read()) == [1, 2]
    assert reader.read() == []
    lake.append(ORDERS, orders(8, store=3))
    lake.append(ORDERS, orders(3) + orders(9, store=1))
    lake.append(ORDERS, orders(4, 5))
    changes = reader.read()
    assert numbers(changes) == [3, 4, 5]
    assert [change.version for change in changes] == [2, 3, 3]
    assert {change.operation for change in changes} == {"insert"}


@pytest.mark.parametrize("places", [range(1, 6)])
def test_every_token_goes_on_after_its_change(lake: QueryLake, places: range) -> None:
    lake.append(ORDERS, orders(1, 2))
    reader = lake.query(REFERENCE)
    changes = reader.read()
    lake.append(ORDERS, orders(3, 4))
    lake.append(ORDERS, orders(5))
    changes += reader.read()
    for change in changes:
        rest = lake.query(REFERENCE, token=change.token)
        assert numbers(rest.read()) == [*range(change.row["store_order_id"] + 1, 6)]


def test_files_without_a_row_of_the_result_are_skipped(lake: QueryLake) -> None:
    """Each portion goes on where the one before ended; one that is empty would not move on."""
    lake.append(ORDERS, orders(1))
    lake.append(ORDERS, orders(7, 8, store=3))
    lake.append(ORDERS, orders(2))
    query = PushQuery(lake.catalog, REFERENCE)
    ends = [query.token, *(portion.token for portion in query.start()), query.token]
    assert len(ends) == len(set(ends)) == 4
    assert [numbers(lake.query(REFERENCE, token=end).read()) for end in ends] == [
        [1, 2],
        [2],
        [],
        [],
    ]


def test_where_a_query_starts(lake: QueryLake) -> None:
    lake.append(ORDERS, orders(1))
    lake.append(ORDERS, orders(2))
    only_new, later = lake.query(REFERENCE, only_new=True), lake.query(REFERENCE, from_version=0)
    assert numbers(only_new.read()) == []
    assert numbers(later.read()) == [2]
    lake.append(ORDERS, orders(3))
    assert numbers(only_new.read()) == [3]
    assert numbers(later.read()) == [3]


def test_new_column_is_announced_before_its_rows(lake: QueryLake) -> None:
    lake.append(ORDERS, orders(1))
    reader = lake.query(REFERENCE)
    reader.read()
    lake.append(ORDERS, orders(2, channel="app"))
    assert reader.rows() == [("insert", {"store_id": 2, "store_order_id": 2, "channel": "app"})]
    assert [notice.names for notice in reader.notices] == [("channel",)]


def test_groups_that_change_are_emitted(lake: QueryLake) -> None:
    lake.append(ORDERS, orders(1, 2) + orders(1, store=3))
    sql = f"SELECT store_id, count(*) AS n, max(store_order_id) FROM {ORDERS} GROUP BY store_id"
    reader = lake.query(f"{sql} EMIT CHANGES")
    assert reader.rows() == [
        ("insert", {"store_id": 2, "n": 2, "max(store_order_id)": 2}),
        ("insert", {"store_id": 3, "n": 1, "max(store_order_id)": 1}),
    ]
    lake.append(ORDERS, orders(9) + orders(4, store=5))
    assert reader.rows() == [
        ("update", {"store_id": 2, "n": 3, "max(store_order_id)": 9}),
        ("insert", {"store_id": 5, "n": 1, "max(store_order_id)": 4}),
    ]
    lake.delta(ORDERS).delete("store_id = 2 AND store_order_id = 9 OR store_id = 5")
    assert reader.rows() == [
        ("delete", {"store_id": 5, "n": 1, "max(store_order_id)": 4}),
        ("update", {"store_id": 2, "n": 2, "max(store_order_id)": 2}),
    ]


def minute(number: int) -> datetime:
    return datetime(2026, 1, 5, 12, tzinfo=UTC) + timedelta(minutes=number)


def test_windows_of_event_time_are_groups(lake: QueryLake) -> None:
    lake.append(ORDERS, orders(1, at=minute(3)) + orders(2, at=minute(9)) + orders(3, at=None))
    sql = f"SELECT window.start, window.end, count(*) AS n FROM {ORDERS}"
    reader = lake.query(f"{sql} GROUP BY window(at, '10 minutes') EMIT CHANGES")
    assert [(op, row["start"], row["end"], row["n"]) for op, row in reader.rows()] == [
        ("insert", minute(0), minute(10), 2),
        ("insert", None, None, 1),
    ]
    lake.append(ORDERS, orders(4, at=minute(19)) + orders(5, at=minute(-1)))
    lake.append(ORDERS, orders(6, at=minute(0)))  # late
    assert [(op, row["start"], row["n"]) for op, row in reader.rows()] == [
        ("insert", minute(-10), 1),
        ("insert", minute(10), 1),
        ("update", minute(0), 3),
    ]


def test_window_is_a_column_of_the_result(lake: QueryLake) -> None:
    lake.append(ORDERS, orders(1, at=minute(3)))
    sql = f"SELECT window, count(*) AS n FROM {ORDERS} GROUP BY window(at, '1 hour 30 minutes')"
    ((_, row),) = lake.query(f"{sql} EMIT CHANGES").rows()
    assert row == {"window": {"start": minute(0), "end": minute(90)}, "n": 1}


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("GROUP BY window(at, '10 parsecs')", "length `10 parsecs`"),
        ("GROUP BY window(at, '10 minutes', '5 minutes')", "overlap"),
        ("GROUP BY window(at)", "without a length"),
        ("GROUP BY window(at, '1 hour') HAVING window.middle > at", "`window.middle`"),
        ("WHERE window(at, '1 hour').start > at GROUP BY store_id", "outside of GROUP BY"),
        ("GROUP BY window(at, '1 hour'), window(at, '2 hours')", "two different windows"),
    ],
)
def test_bad_window_is_refused_at_its_place(lake: QueryLake, written: str, problem: str) -> None:
    lake.append(ORDERS, orders(1, at=minute(0)))
    with pytest.raises(HeadgateError, match=problem):
        lake.query(f"SELECT count(*) FROM {ORDERS} {written} EMIT CHANGES")


def test_column_may_be_called_window(lake: QueryLake) -> None:
    lake.append(ORDERS, orders(1, window={"start": 7}))
    reader = lake.query(f"SELECT window.start FROM {ORDERS} EMIT CHANGES")
    assert reader.rows() == [("insert", {"start": 7})]


def test_rows_are_counted_though_no_column_is_used_and_files_have_none_of_them(
    lake: QueryLake,
) -> None:
    lake.append("t", [{"a": 1}, {"a": 2}])
    lake.append("u", [{"k": 1}, {"k": 2}])
    readers = {
        sql: lake.query(f"{sql} EMIT CHANGES")
        for sql in (
            "SELECT count(*) AS n FROM t",
            "SELECT 1 AS n FROM t",
            "SELECT count(*) AS n FROM u LEFT JOIN t ON true",
        )
    }
    rows = {sql: replayed(reader.read()) for sql, reader in readers.items()}
    assert list(rows.values()) == [{"{'n': 2}": 1}, {"{'n': 1}": 2}, {"{'n': 4}": 1}]
    other_columns = pa.Table.from_pylist([{"b": "x"}, {"b": "y"}, {"b": "z"}])
    write_deltalake(lake.path / "t", other_columns, mode="overwrite", schema_mode="overwrite")
    after = {sql: replayed(reader.read(), rows[sql]) for sql, reader in readers.items()}
    assert list(after.values()) == [{"{'n': 3}": 1}, {"{'n': 1}": 3}, {"{'n': 6}": 1}]


def replayed(changes: list[Change], before: Mapping[str, int] | None = None) -> Counter[str]:
    found = Counter(before or {})
    for change in changes:
        if change.before is not None:
            found[repr(dict(change.before))] -= 1
        if change.operation != "delete":
            found[repr(dict(change.row))] += 1
    assert min(found.values(), default=0) >= 0
    return +found


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        ("SELECT stor_id FROM pizza_orders_avro EMIT CHANGES", "store_id"),
        ("SELECT * FROM pizza_order_avro EMIT CHANGES", "silver_pizza_orders_avro"),
        ("SELECT * FROM pizza_orders_avro EMIT CHANGE", "CHANGES"),
        ("SELECT * FROM pizza_orders_avro ORDER BY store_id EMIT CHANGES", "order of commits"),
        ("SELECT flor(store_id) AS f FROM pizza_orders_avro EMIT CHANGES", "floor"),
        ("SELECT * FROM pizza_orders_avro VERSION AS OF 0 EMIT CHANGES", "newest version"),
        (
            "SELECT DISTINCT count(*) FROM pizza_orders_avro EMIT CHANGES",
            "groups",
        ),
        (
            "SELECT 1 FROM pizza_orders_avro GROUP BY ROLLUP (store_id) EMIT CHANGES",
            "columns",
        ),
        ("SELECT * FROM read_csv('/etc/passwd') EMIT CHANGES", ""),
        ("SELECT * FROM '/etc/passwd' EMIT CHANGES", ""),
    ],
)
def test_wrong_query_is_an_error_with_a_hint(lake: QueryLake, sql: str, hint: str) -> None:
    lake.append(ORDERS, orders(1))
    with pytest.raises(HeadgateError) as raised:
        lake.query(sql).read()
    assert hint in str(raised.value.hint)


def test_token_has_no_character_that_a_header_cannot_have(lake: QueryLake) -> None:
    lake.append(ORDERS, orders(1))
    sql = f"SELECT store_order_id FROM {ORDERS} AS `a/ü \x85\r\ndata: x` EMIT CHANGES"
    reader = lake.query(sql)
    reader.read()
    lake.append(ORDERS, orders(2, 3))
    token = reader.read()[0].token
    assert token.isascii()
    assert token.isprintable()
    assert numbers(lake.query(sql, token=token).read()) == [3]


def test_token_of_another_query_or_table_is_refused(lake: QueryLake) -> None:
    lake.append(ORDERS, orders(1))
    (change,) = lake.query(REFERENCE).read()
    with pytest.raises(HeadgateError, match="not a token of this query"):
        lake.query(REFERENCE.replace("2", "3"), token=change.token)
    shutil.rmtree(lake.path / ORDERS)
    lake.append(ORDERS, orders(1))
    with pytest.raises(HeadgateError, match="not a token of this query"):
        lake.query(REFERENCE, token=change.token)


@pytest.mark.parametrize("again", [False, True])
def test_table_that_is_dropped_ends_the_query(lake: QueryLake, again: bool) -> None:
    lake.append(ORDERS, orders(1))
    lake.append(ORDERS, orders(2))
    reader = lake.query(REFERENCE)
    reader.read()
    shutil.rmtree(lake.path / ORDERS)
    if again:
        lake.append(ORDERS, orders(3))
    with pytest.raises(HeadgateError) as raised:
        reader.read()
    assert raised.value.code == "table-replaced"


def test_version_that_was_vacuumed_is_an_error_and_not_a_gap(lake: QueryLake) -> None:
    lake.append(ORDERS, orders(1))
    reader = lake.query(REFERENCE)
    reader.read()
    lake.append(ORDERS, orders(2))
    lake.append(ORDERS, orders(3))
    lake.delta(ORDERS).optimize.compact()
    vacuum(lake)
    with pytest.raises(HeadgateError) as raised:
        reader.read()
    assert raised.value.code == "version-vacuumed"


def test_rows_so_far_that_were_vacuumed_are_an_error(lake: QueryLake) -> None:
    for number in range(3):
        lake.append(ORDERS, orders(number))
    sql = f"SELECT store_order_id FROM {ORDERS} EMIT CHANGES"
    token = lake.query(sql).read()[1].token
    lake.delta(ORDERS).optimize.compact()
    vacuum(lake)
    with pytest.raises(HeadgateError) as raised:
        lake.query(sql, token=token).read()
    assert raised.value.code == "version-vacuumed"


def test_rows_that_are_vacuumed_while_they_are_read_are_an_error(lake: QueryLake) -> None:
    lake.append(ORDERS, orders(1))
    for file in (lake.path / ORDERS).glob("*.parquet"):
        file.unlink()
    with pytest.raises(HeadgateError) as raised:
        lake.pull(f"SELECT store_order_id FROM {ORDERS}")
    assert raised.value.code == "version-vacuumed"


def vacuum(lake: QueryLake) -> None:
    lake.delta(ORDERS).vacuum(
        retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True
    )


PARTITIONS: Mapping[str, tuple[pa.DataType, list[Any]]] = {
    "time": (pa.timestamp("us", "UTC"), [minute(0), minute(-1) + timedelta(microseconds=7)]),
    "local time": (pa.timestamp("us"), [datetime(2020, 1, 1, 12), datetime(1969, 1, 1)]),
    "date": (pa.date32(), [date(2020, 1, 1), date(1969, 1, 1)]),
    "number": (pa.int32(), [1, -5]),
    "fraction": (pa.float64(), [1.5, float("inf")]),
    "decimal": (pa.decimal128(10, 2), [Decimal("1.50"), Decimal("20.25")]),
    "boolean": (pa.bool_(), [True, False]),
    "text": (pa.string(), ["a", "ü /%="]),
}


@pytest.mark.parametrize("kind", PARTITIONS)
def test_changes_have_the_values_of_partitions(lake: QueryLake, kind: str) -> None:
    data_type, values = PARTITIONS[kind]
    schema = pa.schema([("p", data_type), ("n", pa.int64())])

    def write(*parts: Any) -> None:
        rows = [{"p": part, "n": at} for at, part in enumerate(parts)]
        path = lake.path / "t"
        write_deltalake(path, pa.Table.from_pylist(rows, schema), mode="append", partition_by=["p"])

    write(values[0])
    sql = "SELECT p, n FROM t EMIT CHANGES"
    reader = lake.query(sql)
    changes = reader.read()
    write(*values, None)
    lake.delta("t").delete("n = 0")
    changes += reader.read()
    rows = lake.delta("t").to_pyarrow_table(columns=["p", "n"])
    assert len(rows) == 2
    assert replayed(changes) == Counter(repr(row) for row in python_rows(rows))


def test_compaction_changes_nothing(lake: QueryLake) -> None:
    lake.append(ORDERS, orders(1))
    lake.append(ORDERS, orders(2))
    reader = lake.query(REFERENCE)
    reader.read()
    lake.delta(ORDERS).optimize.compact()
    lake.append(ORDERS, orders(3))
    assert numbers(reader.read()) == [3]


def test_many_queries_read_each_commit_once(lake: QueryLake) -> None:
    lake.append(ORDERS, orders(1))
    readers = [lake.query(REFERENCE) for _ in range(20)]
    for reader in readers:
        reader.read()
    for number in range(2, 6):
        lake.append(ORDERS, orders(number))
    assert all(numbers(reader.read()) == [2, 3, 4, 5] for reader in readers)
    assert lake.feed(ORDERS).commits_read == 4
