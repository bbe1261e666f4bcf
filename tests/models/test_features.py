from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import InvalidPipeline, LandingError
from headgate.lake.duck import Sql
from headgate.models.features import AT, FeatureQuery, parse_features
from headgate.sql.query import over_tables, parse_query

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
TIME = pa.timestamp("us", "UTC")
WINDOW = timedelta(minutes=60)

COUNTS = "SELECT count(*) AS orders, max(n) AS newest, avg(n) AS mean FROM orders"

OPEN_AND_WAITS = """
WITH open AS (
  SELECT o.event_time, o.lines FROM orders o LEFT JOIN done d ON d.n = o.n WHERE d.n IS NULL
), waits AS (
  SELECT (unix_millis(d.event_time) - unix_millis(o.event_time)) / 60000.0 AS wait,
    row_number() OVER (ORDER BY d.event_time DESC, d.n DESC) AS place
  FROM done d JOIN orders o ON o.n = d.n
)
SELECT hour(moment) AS hour,
  (SELECT count(*) FROM open) AS open_orders,
  (SELECT min(event_time) FROM open) AS oldest,
  (SELECT sum(line.quantity) FROM open LATERAL VIEW explode(lines) AS line) AS items,
  (SELECT avg(wait) FROM waits WHERE place <= 3) AS last_waits,
  (SELECT avg(n) FROM (SELECT n FROM done ORDER BY event_time DESC, n DESC LIMIT 2)) AS last_done,
  (SELECT count(*) FROM done WHERE event_time > moment - INTERVAL 10 MINUTES) AS recent,
  (SELECT count(CASE WHEN n > 2 THEN 1 END) + 1 FROM done) AS many,
  (SELECT max(c) FROM (SELECT count(*) AS c FROM orders GROUP BY n)) AS most
"""

Row = tuple[int, int, float | None]
"""Store, number, and minutes after noon."""


def at(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def table(rows: Sequence[Row]) -> pa.Table:
    """Return rows with event times; `_timestamp` is a minute later, as records are."""
    times = [None if minutes is None else at(minutes) for *_, minutes in rows]
    return pa.table(
        {
            "_timestamp": pa.array([(t or NOON) + timedelta(minutes=1) for t in times], TIME),
            "store_id": pa.array([store for store, *_ in rows], pa.int32()),
            "n": pa.array([n for _, n, _ in rows], pa.int32()),
            "event_time": pa.array(times, TIME),
            "lines": pa.array(
                [[{"quantity": 1 + n % 3}] * (n % 3) for _, n, _ in rows],
                pa.list_(pa.struct([("quantity", pa.int32())])),
            ),
        }
    )


def moments(*given: tuple[int, float]) -> pa.Table:
    return pa.table(
        {
            "store_id": pa.array([store for store, _ in given], pa.int32()),
            AT: pa.array([at(minutes) for _, minutes in given], TIME),
        }
    )


def features(text: str = COUNTS, time: str | None = "event_time") -> FeatureQuery:
    return parse_features(text, "store_id", time, WINDOW)


def evaluate(
    query: FeatureQuery, wanted: pa.Table, **tables: Sequence[Row] | pa.Table
) -> list[dict[str, Any]]:
    sql = Sql()
    for name, rows in tables.items():
        sql.register(name, rows if isinstance(rows, pa.Table) else table(rows))
    found: list[dict[str, Any]] = query.evaluate(sql, wanted).to_pylist()
    return found


def test_only_rows_of_the_key_in_the_window_up_to_the_moment_count() -> None:
    rows = [(1, 1, -60), (1, 2, -59.9), (1, 3, 0), (1, 4, 0.1), (2, 5, -1)]
    (found,) = evaluate(features(), moments((1, 0)), orders=rows)
    assert found == {"store_id": 1, AT: NOON, "orders": 2, "newest": 3, "mean": 2.5}


def test_features_come_in_the_order_of_the_moments_also_when_these_repeat() -> None:
    wanted = moments((2, 5), (1, 9), (2, 1), (1, 9))
    found = evaluate(features(), wanted, orders=[(1, 1, 0), (2, 2, 0), (2, 3, 2)])
    assert [(row["store_id"], row["orders"]) for row in found] == [(2, 2), (1, 1), (2, 1), (1, 1)]
    assert [row[AT] for row in found] == wanted[AT].to_pylist()


def test_key_without_rows_has_features_of_no_rows() -> None:
    found = evaluate(features(), moments((7, 0), (1, 0)), orders=[(1, 1, 0)])
    assert [tuple(row.values())[2:] for row in found] == [(0, None, None), (1, 1, 1.0)]


def test_counts_of_no_rows_are_zero_as_in_spark() -> None:
    query = features("SELECT count_if(n > 1) AS some, count(DISTINCT n) + 1 AS more FROM orders")
    (found,) = evaluate(query, moments((7, 0)), orders=[(1, 1, 0)])
    assert (found["some"], found["more"]) == (0, 1)


def test_no_moments_give_no_rows_but_columns() -> None:
    sql = Sql()
    sql.register("orders", table([]))
    found = features().evaluate(sql, moments())
    assert found.column_names == ["store_id", AT, "orders", "newest", "mean"]
    assert len(found) == 0


def test_record_timestamp_counts_where_there_is_no_event_time() -> None:
    rows = [(1, 1, None), (1, 2, 0.5)]
    query = features("SELECT count(*) AS orders, max(event_time) AS last FROM orders")
    first, second = evaluate(query, moments((1, 0.7), (1, 1)), orders=rows)
    assert (first["orders"], second["orders"]) == (1, 2)
    assert second["last"] == at(1)


def test_table_without_event_times_has_those_of_records() -> None:
    rows = table([(1, 1, 0), (1, 2, 5)]).drop_columns("event_time")
    (found,) = evaluate(features(), moments((1, 1)), orders=rows)
    assert found["orders"] == 1


def test_time_defaults_to_the_timestamp_of_the_record() -> None:
    (found,) = evaluate(features(time=None), moments((1, 0)), orders=[(1, 1, -1), (1, 2, 0)])
    assert found["newest"] == 1


def test_many_moments_are_evaluated_like_few() -> None:
    rows = [(store, n, n * 7) for store in (1, 2, 3) for n in range(200)]
    wanted = [(1 + n % 3, (n * 37) % 1400) for n in range(300)]
    found = evaluate(features(), moments(*wanted), orders=rows)
    assert [row["orders"] for row in found] == [
        sum(minutes - 60 < time <= minutes for one, _, time in rows if one == store)
        for store, minutes in wanted
    ]


def evaluate_one(text: str, store: int, minutes: float, **tables: list[Row]) -> dict[str, Any]:
    """Run the query as it is written, over tables that have only what may be seen."""
    query = parse_query(re.sub(r"\bmoment\b", f"TIMESTAMP '{at(minutes)}'", text))
    views = {}
    for name, rows in tables.items():
        visible = [row for row in rows if row[0] == store and minutes - 60 < _time(row) <= minutes]
        views[name] = table([(one, n, _time((one, n, time))) for one, n, time in visible])
    (found,) = Sql().table(over_tables(query, {name: name for name in views}), **views).to_pylist()
    return {"store_id": store, AT: at(minutes), **found}


STORES = st.integers(1, 2)
MINUTES = st.integers(-70, 70)
ROWS = st.lists(st.tuples(STORES, st.integers(0, 5), st.none() | MINUTES), max_size=12)


def _time(row: Row) -> float:
    return 1 if row[2] is None else row[2]


@settings(max_examples=15, deadline=None)
@given(orders=ROWS, done=ROWS, wanted=st.lists(st.tuples(STORES, MINUTES), min_size=1, max_size=3))
def test_features_are_those_of_a_lake_that_has_only_what_may_be_seen(
    orders: list[Row], done: list[Row], wanted: list[tuple[int, int]]
) -> None:
    """Neither the future nor other keys nor what is older than the window make a difference."""
    together = evaluate(features(OPEN_AND_WAITS), moments(*wanted), orders=orders, done=done)
    alone = [evaluate_one(OPEN_AND_WAITS, *moment, orders=orders, done=done) for moment in wanted]
    assert together == alone


@settings(max_examples=10, deadline=None)
@given(orders=ROWS, done=ROWS, later=ROWS)
def test_what_happens_later_changes_nothing(
    orders: list[Row], done: list[Row], later: list[Row]
) -> None:
    query, wanted = features(OPEN_AND_WAITS), moments((1, 5), (2, 5), (1, -20))
    future: list[Row] = [(store, n, 5.001 + abs(minutes or 0)) for store, n, minutes in later]
    before = evaluate(query, wanted, orders=orders, done=done)
    assert evaluate(query, wanted, orders=orders + future, done=future + done) == before


@pytest.mark.parametrize(
    ("text", "message", "hint", "place"),
    [
        ("SELECT count(*) AS c FROM ordes", "reads `ordes`, an unknown table", "orders", (1, 27)),
        ("SELECT max(nn) AS c\nFROM done,\n orders", "has `nn`, which no table has", None, (1, 12)),
        (
            "SELECT max(o.evnt_time) AS c FROM orders o",
            "has `o.evnt_time`, a column that table does not have",
            "event_time",
            (1, 12),
        ),
        ("SELECT max(n) FILTER (WHERE momnt > 1) AS c FROM orders", "`momnt`", "moment", (1, 29)),
        (
            "WITH a AS (SELECT n FROM orders) SELECT max(lnes) AS c FROM a",
            "has `lnes`",
            "lines",
            (1, 45),
        ),
    ],
)
def test_unknown_names_are_located(
    text: str, message: str, hint: str | None, place: tuple[int, int]
) -> None:
    with pytest.raises(InvalidPipeline, match="bad-sql") as raised:
        evaluate(features(text), moments((1, 0)), orders=[], done=[])
    assert message in raised.value.message
    assert hint is None or hint in (raised.value.hint or "")
    assert raised.value.inside == place


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT count(*) AS c, current_timestamp() AS t FROM orders", "depends on"),
        ("SELECT max(rand()) AS c FROM orders", "depends on"),
        ("SELECT max(today()) AS c FROM orders", "depends on"),
        ("SELECT max(getvariable('x')) AS c FROM orders", "depends on"),
        ("SELECT first(n) AS c FROM orders", "depends on the order of rows"),
        ("SELECT max(n) AS c FROM (SELECT n FROM orders LIMIT 3)", "LIMIT without ORDER BY"),
        ("SELECT max(reflect('a', 'b')) AS c FROM orders", "calls Java code"),
        ("SELECT max(n) AS c FROM orders, query_table('orders')", "reads from"),
        ("SELECT max(n) AS c FROM memory.main.orders", "reads from"),
        ("SELECT max(n) AS c FROM orders LATERAL VIEW query('x') AS y", "has LATERAL"),
        ("SELECT max(n) AS c FROM orders, _headgate_0", "a reserved name"),
        ("SELECT max(n) AS c FROM orders EMIT CHANGES", "has EMIT CHANGES"),
        ("SELECT max(n) FROM orders", "a feature without a name"),
        ("SELECT max(n) AS at FROM orders", "the name of the moment"),
        ("SELECT max(n) AS store_id FROM orders", "the name of the key"),
        ("SELECT max(n) AS a, min(n) AS A FROM orders", "the name of another feature"),
        ("SELECT * FROM orders", "`*` among the features"),
        ("SELECT 1 AS c", "reads no table"),
        ("SELECT count(*) AS c FROM orders o WHERE EXISTS (SELECT 1 FROM done)", "has `EXISTS"),
        ("SELECT count(*) AS c FROM orders WHERE n IN (SELECT n FROM done)", "has `n IN"),
        ("SELECT count(*) AS c FROM orders RIGHT JOIN done USING (n)", "has `RIGHT JOIN"),
        ("SELECT (SELECT n FROM orders) AS c FROM done", "has `\\(SELECT n"),
        ("SELECT max(n) AS c FROM (SELECT * FROM orders)", "has `\\*`"),
    ],
)
def test_queries_that_could_not_be_repeated_are_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidPipeline, match=message):
        features(text)


def test_query_with_several_rows_is_refused_with_the_moment() -> None:
    rows = [(1, 1, 0), (1, 2, 0), (2, 3, 0)]
    with pytest.raises(LandingError, match="2 rows for store_id 1 at 2026-01-05 12:05:00"):
        evaluate(features("SELECT n AS c FROM orders"), moments((2, 5), (1, 5)), orders=rows)
    with pytest.raises(LandingError, match="0 rows for store_id 3"):
        evaluate(features("SELECT n AS c FROM orders"), moments((2, 5), (3, 5)), orders=rows)


def test_table_without_the_key_is_refused() -> None:
    rows = table([]).rename_columns(["_timestamp", "shop_id", "n", "event_time", "lines"])
    with pytest.raises(InvalidPipeline, match="`orders`, which has no column `store_id`"):
        evaluate(features(), moments((1, 0)), orders=rows)


def test_time_that_is_not_a_timestamp_is_refused() -> None:
    with pytest.raises(InvalidPipeline, match="whose `n` is not a timestamp"):
        evaluate(features(time="n"), moments((1, 0)), orders=[])


def test_alias_of_the_engine_cannot_be_taken_over() -> None:
    """An alias such as `m` or `r` means the table that the query gives it to."""
    query = features("SELECT count(*) AS c, max(m.at) AS t FROM orders m JOIN done r ON m.n = r.n")
    rows = table([(1, 1, 0), (1, 2, 50)]).append_column("at", pa.array([at(99)] * 2, TIME))
    (found,) = evaluate(query, moments((1, 5)), orders=rows, done=rows)
    assert (found["c"], found["t"]) == (1, at(99))


def test_alias_may_mean_a_table_here_and_own_rows_there() -> None:
    query = features(
        "WITH late AS (SELECT o.n AS m FROM orders o WHERE o.n > 1) "
        "SELECT max(o.m) AS c FROM late o"
    )
    (found,) = evaluate(query, moments((1, 5)), orders=[(1, 1, 0), (1, 2, 0)])
    assert found["c"] == 2


def test_columns_worth_reading_are_those_named_and_those_needed() -> None:
    names = ["_timestamp", "_offset", "store_id", "n", "event_time", "lines"]
    assert features().columns_of("orders", names) == ["_timestamp", "store_id", "n", "event_time"]
    assert sorted(features(OPEN_AND_WAITS).tables) == ["done", "orders"]


def test_digest_depends_on_meaning_not_on_layout() -> None:
    assert features().digest == features(COUNTS.replace(" FROM", "\nFROM  -- all\n")).digest
    assert features().digest != features(COUNTS.replace("avg", "min")).digest
    assert features().digest != features(time=None).digest
