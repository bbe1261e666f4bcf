"""Whoever asks for whatever: an answer with a code, and a server that answers others meanwhile."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.serve.conftest import QueryLake
from tests.serve.test_http import ALL, ORDERS, Served, numbers, orders, run

ENDLESS = "SELECT count(*) AS n FROM a JOIN b ON a.n + b.n = -1 JOIN c ON a.n + c.n = -1"
UNINTERRUPTIBLE = "SELECT length(repeat('x', 1000000000)) AS n FROM a WHERE n = 0"
HUGE = "SELECT size(sequence(0, 1000000000)) AS n FROM a WHERE n = 0"
CHANGES = " EMIT CHANGES"


@pytest.fixture
def served(lake: QueryLake) -> Iterator[Served]:
    lake.append(ORDERS, orders(1, 2))
    for table in "abc":
        lake.append(table, [{"n": number} for number in range(20_000)])
    server = Served(lake)
    run(lambda: is_answering(server))
    yield server
    server.stop()


async def is_answering(served: Served) -> None:
    """Check that nothing is stuck: each kind of query is answered, at the same time."""
    rows = "SELECT store_order_id AS n FROM pizza_orders_avro ORDER BY n"

    async def pulled() -> None:
        async with served.client.query(rows) as answer:
            assert await answer.json() == [{"n": 1}, {"n": 2}]

    async def pushed() -> None:
        async with served.client.query(ALL) as answer:
            assert numbers(await answer.changes(2)) == [1, 2]

    async def healthy() -> None:
        async with served.client.get("/health") as answer:
            assert (await answer.json())["ok"]

    await asyncio.gather(healthy(), *(pulled() for _ in range(4)), *(pushed() for _ in range(8)))
    await served.idle()


def limit(served: Served, **limits: Any) -> None:
    workers = served.http.queries.workers
    workers.limits = replace(workers.limits, **limits)


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("sql", [ENDLESS, ENDLESS + CHANGES, UNINTERRUPTIBLE + CHANGES])
def test_query_that_takes_too_long_is_ended(served: Served, sql: str) -> None:
    async def scenario() -> None:
        limit(served, seconds=0.5)
        async with served.client.query(sql) as answer:
            assert answer.status == 422
            assert (await answer.json())["code"] == "query-timeout"
        limit(served, seconds=60)
        await is_answering(served)

    run(scenario)


def test_change_that_takes_too_long_ends_the_stream(served: Served) -> None:
    async def scenario() -> None:
        slow = "SELECT count(*) AS n FROM pizza_orders_avro JOIN a ON store_id > 3 OR store_id < 1"
        sql = f"{slow} JOIN b ON a.n + b.n = -1 JOIN c ON a.n + c.n = -1 EMIT CHANGES"
        async with served.client.query(sql) as answer:
            events = answer.events()
            assert [(await anext(events)).name, (await anext(events)).data["row"]] == [
                "columns",
                {"n": 0},
            ]
            limit(served, seconds=0.5)
            served.lake.append(ORDERS, orders(9, store=9))
            assert [event.data["code"] async for event in events] == ["query-timeout"]

    run(scenario)


@pytest.mark.parametrize("sql", [HUGE, HUGE + CHANGES, "SELECT a.n FROM a CROSS JOIN b"])
def test_query_that_needs_too_much_memory_is_ended(served: Served, sql: str) -> None:
    async def scenario() -> None:
        limit(served, memory=64 << 20)
        async with served.client.query(sql) as answer:
            assert answer.status == 422
            assert (await answer.json())["code"] == "query-too-large"
        limit(served, memory=1 << 30)
        await is_answering(served)

    run(scenario)


def test_table_that_is_larger_than_the_memory_is_not_read(served: Served) -> None:
    async def scenario() -> None:
        limit(served, memory=16 << 20)
        served.lake.append("d", [{"n": 1, "s": "x" * 9_000_000}, {"n": 2, "s": "y" * 9_000_000}])
        sql = "SELECT n, length(s) AS l FROM d"
        for text in (sql, sql + CHANGES, f"SELECT max(l) AS m FROM ({sql})"):
            async with served.client.query(text) as answer:
                assert answer.status == 422
        async with served.client.query("SELECT n FROM d ORDER BY n") as answer:
            assert await answer.json() == [{"n": 1}, {"n": 2}]

    run(scenario)


@pytest.mark.parametrize("sql", [ENDLESS, ENDLESS + CHANGES])
def test_query_ends_when_its_readers_leave(served: Served, sql: str) -> None:
    async def scenario() -> None:
        readers = [asyncio.create_task(forever(sql)) for _ in range(6)]
        await until(lambda: served.connected == 6)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        await served.idle()
        await is_answering(served)

    async def forever(sql: str) -> None:
        async with served.client.query(sql):
            raise AssertionError("it cannot be answered")

    run(scenario)


def test_server_stops_in_the_middle_of_queries(lake: QueryLake) -> None:
    for table in "abc":
        lake.append(table, [{"n": number} for number in range(20_000)])
    served = Served(lake)

    async def scenario() -> None:
        async def ask(sql: str) -> int:
            async with served.client.query(sql) as answer:
                return int(answer.status)

        asked = [asyncio.create_task(ask(sql)) for sql in (ENDLESS, ENDLESS + CHANGES)]
        await until(lambda: served.connected == 2)
        await asyncio.to_thread(served.stop)
        await asyncio.gather(*asked, return_exceptions=True)

    run(scenario)


def test_thousand_idle_connections_are_closed_and_others_are_answered(served: Served) -> None:
    async def scenario() -> None:
        connections = served.http.connections
        connections.request_seconds = 1
        idle = []
        for number in range(1_000):
            _, out = await asyncio.open_connection(served.client.host, served.client.port)
            out.write(b"GET /query HTTP/1.1\r\nHost: lo" if number % 2 else b"")
            idle.append(out)
            if number % 100 == 0:
                async with served.client.get("/health") as answer:
                    assert answer.status == 200
        assert connections.count <= connections.most + 1
        await is_answering(served)
        await until(lambda: connections.count == 0)
        for out in idle:
            out.transport.abort()

    run(scenario)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /health HTTP/1.1\r\nHost: lo",
        b"POST /query HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\na",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /health HT",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n",
        f"GET /query?sql={quote(ALL)} HTTP/1.1\r\nHost: localhost\r\n"
        "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n".encode(),
    ],
)
def test_connection_that_does_not_finish_its_request_is_closed(served: Served, sent: bytes) -> None:
    async def scenario() -> None:
        served.http.connections.request_seconds = 0.2
        lines, out = await asyncio.open_connection(served.client.host, served.client.port)
        out.write(sent)

        async def trickle() -> None:
            while not out.transport.is_closing():
                out.write(b"a")
                await asyncio.sleep(0.05)

        slow = asyncio.create_task(trickle())
        try:
            while await lines.read(1 << 16):
                pass
        except ConnectionError:
            pass
        await slow
        await until(lambda: served.http.connections.count == 0)

    run(scenario)


@pytest.mark.parametrize("sql", ["SELECT n, {} AS s FROM a", "SELECT n, {} AS s FROM a" + CHANGES])
def test_readers_that_stop_reading_are_cut_off(served: Served, sql: str) -> None:
    async def scenario() -> None:
        served.http.connections.stalled_seconds = 0.5
        wide = sql.format(f"'{'x' * 5_000}'")
        stalled = []
        for _ in range(5):
            _, out = await asyncio.open_connection(
                served.client.host, served.client.port, limit=1 << 10
            )
            out.write(f"GET /query?sql={quote(wide)} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            stalled.append(out)
        await until(lambda: served.connected > 0)
        await served.idle()
        assert served.http.queries._held_bytes == 0
        await is_answering(served)
        for out in stalled:
            out.transport.abort()

    run(scenario)


LOCAL = ["localhost", "LOCALHOST:8321", "127.0.0.1:80", "[::1]:8321"]
FOREIGN = [
    "",
    "evil.example",
    "evil.example:99999",
    "evil.example:",
    "localhost:99999",
    "localhost:",
    "localhost:80:80",
    "localhost.",
    "user@localhost",
    "localhost@evil.example",
    "localhost.evil.example",
    "localhost/evil.example",
    "[::1",
    *(f"a{mark}b.evil.example" for mark in "!\"$&'()*+,;=_`{}~|^%<> \\"),
]


@pytest.mark.parametrize("path", ["/", "/query?sql=SELECT"])
def test_only_local_host_names_are_answered(served: Served, path: str) -> None:
    async def scenario() -> None:
        for name in LOCAL:
            async with served.client.get(path, Host=name) as answer:
                assert answer.status in (200, 400), name
        for name in FOREIGN:
            async with served.client.get(path, Host=name) as answer:
                assert answer.status == 401, name

    run(scenario)


def test_pages_of_other_origins_are_refused(served: Served) -> None:
    own = {"Host": "localhost:8321", "Origin": "http://localhost:8321"}
    refused = [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:3000", "Host": "localhost:8321"},
        {"Origin": "http://localhost:8321.evil.example", "Host": "localhost:8321"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Sec_Fetch_Site": "same-origin, cross-site"},
    ]
    answered = [{}, own, {"Sec_Fetch_Site": "same-origin"}, {"Sec_Fetch_Site": "none"}]

    async def scenario() -> None:
        for headers, status in [*((h, 401) for h in refused), *((h, 200) for h in answered)]:
            async with served.client.get("/", **headers) as answer:
                assert answer.status == status, headers
            async with served.client.get("/health", **headers) as answer:
                assert answer.status == 200

    run(scenario)


DIGITS = st.sampled_from(["0", "1", "7", "-1", "9" * 18, "9" * 19, "9" * 5_000, "٣", "1e9", ""])
IDENTITY = "IDENTITY"
TOKENS = st.builds(
    "{}-{}{}{}{}".format,
    st.sampled_from([IDENTITY, "1f0c93ae"]),
    st.sampled_from(["s", "c", "x"]),
    DIGITS,
    st.sampled_from(["", "+pizza_orders_avro", "+other", "+"]),
    st.sampled_from(["", "/0", "/5", "/" + "9" * 18, "/" + "9" * 5_000]),
)
SOURCES = st.sampled_from(["pizza_orders_avro", "pizza_orders_avro p JOIN a ON p.store_id = a.n"])
VALUES = st.sampled_from(
    [
        "*",
        "count(*)",
        "1",
        ".".join("a" * 3_000),
        "DATE(" * 30 + "1" + ")" * 30,
        "(" * 500 + "1" + ")" * 500,
        "NOT " * 900 + "true",
        "+".join(["store_id"] * 2_000),
        "`a\x9b31m`",
        "1/0",
        "CAST('x' AS INT)",
        "sum(store_id) OVER ()",
        "window(store_id, '99999999999999999999 hours')",
        "9" * 5_000,
        "1e99999",
        "x'zz'",
        "store_id::floa[",
        "'\x00'",
        "CAST(store_id AS ARRAY<INT>)",
        "raise_error('x')",
        "from_unixtime(99999999999999)",
    ]
)
ENDS = st.sampled_from(["", CHANGES, CHANGES + " LIMIT 1", CHANGES + f" LIMIT {'9' * 5_000}"])
QUERIES = st.one_of(
    st.builds("SELECT {} FROM {}{}".format, VALUES, SOURCES, ENDS),
    st.builds("SELECT max(store_id) FROM {} GROUP BY {}{}".format, SOURCES, VALUES, ENDS),
    st.text(max_size=40),
)
PARAMETERS = st.lists(
    st.one_of(
        st.tuples(st.just("token"), TOKENS),
        st.tuples(st.just("from_version"), DIGITS),
        st.tuples(st.just("since"), st.sampled_from(["1h", "soon", "9" * 5_000 + "d", "1e400s"])),
        st.tuples(st.just("new"), st.sampled_from(["0", "1", "maybe", ""])),
        st.tuples(st.text(max_size=5), st.text(max_size=5)),
    ),
    max_size=2,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sql=QUERIES, given=PARAMETERS)
def test_any_request_gets_an_answer_with_a_code(
    served: Served, sql: str, given: list[tuple[str, str]]
) -> None:
    async def scenario() -> None:
        async with served.client.query(ALL) as answer:
            identity = str((await anext(answer.events())).id)[:8]
        parameters = [("sql", sql), *((name, v.replace(IDENTITY, identity)) for name, v in given)]
        query = urlencode(parameters, errors="surrogatepass")
        async with served.client.get(f"/query?{query}") as answer:
            if answer.status == 200:
                assert answer.headers["content-type"]
                return
            assert 400 <= answer.status < 500, parameters
            assert (await answer.json())["code"], parameters

    run(scenario)


def test_duplicate_and_unclear_parameters_are_refused(served: Served) -> None:
    async def scenario() -> None:
        for path in (f"sql={quote(ALL)}&sql=SELECT", f"sql={quote(ALL)}&new=maybe"):
            async with served.client.get(f"/query?{path}") as answer:
                assert (answer.status, json.loads(await answer.text())["code"]) == (
                    400,
                    "bad-argument",
                )

    run(scenario)
