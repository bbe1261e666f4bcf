"""Queries over HTTP: every change once for every reader, however many, slow or interrupted."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from headgate.errors import HeadgateError
from headgate.serve import readers as readers_module
from headgate.serve.events import ENDED, Chunk, EventQuery
from headgate.serve.http import HttpServer
from tests.serve.conftest import QueryLake

ORDERS = "silver_pizza_orders_avro"
ALL = "SELECT * FROM pizza_orders_avro EMIT CHANGES"
COUNTS = "SELECT store_id, count(*) AS n FROM pizza_orders_avro GROUP BY store_id EMIT CHANGES"


def orders(*numbers: int, store: int = 2, **more: Any) -> list[dict[str, Any]]:
    return [{"store_id": store, "store_order_id": number, **more} for number in numbers]


@dataclass(frozen=True)
class Event:
    name: str
    id: str | None
    data: Any


@dataclass
class Answer:
    """A response whose body is still to be read."""

    status: int
    headers: dict[str, str]
    lines: asyncio.StreamReader

    async def body(self) -> bytes:
        found = b""
        while chunk := await self.chunk():
            found += chunk
        return found

    async def json(self) -> Any:
        return json.loads(await self.text())

    async def text(self) -> str:
        if "content-length" in self.headers:
            return (await self.lines.readexactly(int(self.headers["content-length"]))).decode()
        return (await self.body()).decode()

    async def chunk(self) -> bytes:
        """Return the next chunk of the transfer; empty at its end."""
        size = int(await self.lines.readline(), 16)
        chunk = await self.lines.readexactly(size + 2)
        return chunk[:-2]

    async def events(self) -> AsyncIterator[Event]:
        """Yield events until the response ends; ids without data as events without a name."""
        text = b""
        while chunk := await self.chunk():
            text += chunk
            *whole, text = text.split(b"\n\n")
            for one in whole:
                fields = dict(line.split(": ", 1) for line in one.decode().split("\n"))
                data = json.loads(fields["data"]) if "data" in fields else None
                yield Event(fields.get("event", ""), fields.get("id"), data)

    async def changes(self, count: int) -> list[Event]:
        """Return the next changes, and leave out other events."""
        found: list[Event] = []
        async for event in self.events():
            found += [event] if event.name == "change" else []
            if len(found) == count:
                break
        return found


class Client:
    """Asks a server."""

    def __init__(self, url: str) -> None:
        self.host, _, port = url.removeprefix("http://").partition(":")
        self.port = int(port)

    @asynccontextmanager
    async def get(self, path: str, **headers: str) -> AsyncIterator[Answer]:
        lines, out = await asyncio.open_connection(self.host, self.port, limit=1 << 16)
        given = {"Host": self.host, **{name.replace("_", "-"): h for name, h in headers.items()}}
        fields = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        out.write(f"GET {path} HTTP/1.1\r\n{fields}\r\n".encode())
        try:
            status = int((await lines.readline()).split()[1])
            pairs = {}
            while line := (await lines.readline()).strip().decode():
                name, _, value = line.partition(": ")
                pairs[name.lower()] = value
            yield Answer(status, pairs, lines)
        finally:
            out.transport.abort()

    def query(self, sql: str, last: str | None = None, **given: str) -> Any:
        path = f"/query?{urlencode({'sql': sql, **given})}"
        return self.get(path, **({"Last_Event_ID": last} if last else {}))


class Served:
    """A server in a thread, over a lake that tests write to."""

    def __init__(self, lake: QueryLake, **options: Any) -> None:
        self.lake = lake
        self.http = HttpServer(lake.pipeline, **options)
        self.client = Client(self.http.url)
        self._thread = threading.Thread(target=self.http.run)
        self._thread.start()

    @property
    def commits_read(self) -> int:
        catalog = self.http.queries.catalog
        return catalog.feed(catalog.open(ORDERS)).commits_read

    @property
    def connected(self) -> int:
        return self.http.queries._connected

    async def idle(self) -> None:
        """Wait until the server has noticed that all readers are gone."""
        while self.connected or not self.http.queries.readers.is_idle:
            await asyncio.sleep(0.01)

    def stop(self) -> None:
        self.http.stop()
        self._thread.join()


@pytest.fixture
def served(lake: QueryLake) -> Iterator[Served]:
    lake.append(ORDERS, orders(1, 2))
    one = Served(lake)
    yield one
    one.stop()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await scenario()

    asyncio.run(limited())


def content(event: Event) -> tuple[object, ...]:
    return event.id, event.data["op"], event.data["row"], event.data["before"]


def numbers(events: list[Event]) -> list[int]:
    return [event.data["row"]["store_order_id"] for event in events]


def test_rows_without_emit_changes_are_json(served: Served) -> None:
    async def scenario() -> None:
        sql = "SELECT store_order_id AS n FROM pizza_orders_avro ORDER BY n"
        async with served.client.query(sql) as answer:
            assert answer.headers["content-type"] == "application/json"
            assert await answer.json() == [{"n": 1}, {"n": 2}]
        async with served.client.query(f"{sql} LIMIT 0") as answer:
            assert await answer.json() == []

    run(scenario)


def test_stream_has_columns_rows_so_far_changes_and_an_end(served: Served) -> None:
    async def scenario() -> None:
        async with served.client.query(f"{ALL} LIMIT 4") as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            events = answer.events()
            found = [await anext(events) for _ in range(3)]
            served.lake.append(ORDERS, orders(3, channel="app"))
            served.lake.append(ORDERS, orders(4, 5))
            found += [event async for event in events]
        names = [event.name for event in found]
        assert names == ["columns", "change", "change", "columns", "change", "change", "end"]
        assert found[0].data == {"columns": ["store_id", "store_order_id"]}
        assert found[3].data["columns"][-1] == "channel"
        assert found[4].data["token"] == found[4].id
        assert found[4].data["row"] == {"store_id": 2, "store_order_id": 3, "channel": "app"}
        assert found[-1].data == {"changes": 4}
        async with served.client.query(ALL, last=ENDED) as answer:
            assert answer.status == 204

    run(scenario)


@pytest.mark.parametrize("sql", [ALL, COUNTS])
def test_reader_that_is_cut_off_anywhere_goes_on_after_its_last_event(
    served: Served, sql: str
) -> None:
    async def scenario() -> None:
        whole: list[Event] = []
        async with served.client.query(sql) as answer:
            events = answer.events()
            await anext(events)
            first = await anext(events)
            for number in range(10, 16):
                served.lake.append(ORDERS, orders(number, number + 10, store=number % 3))
            whole.append(first)
            while len(whole) < (14 if sql == ALL else 7):
                event = await anext(events)
                whole += [event] if event.name == "change" else []
        for at, event in enumerate(whole):
            async with served.client.query(sql, last=event.id) as answer:
                rest = await answer.changes(len(whole) - at - 1) if whole[at + 1 :] else []
            assert list(map(content, rest)) == list(map(content, whole[at + 1 :]))

    run(scenario)


def test_reader_of_new_changes_misses_none_between_two_connections(served: Served) -> None:
    async def scenario() -> None:
        async with served.client.query(ALL, new="1") as answer:
            columns = await anext(answer.events())
        served.lake.append(ORDERS, orders(3))
        async with served.client.query(ALL, last=columns.id, new="1") as answer:
            assert numbers(await answer.changes(1)) == [3]

    run(scenario)


def test_hundred_readers_get_all_changes_and_each_commit_is_read_once(served: Served) -> None:
    async def read(opened: asyncio.Semaphore) -> list[int]:
        async with served.client.query(ALL) as answer:
            events = answer.events()
            await anext(events)
            opened.release()
            return numbers([await anext(events) for _ in range(22)])

    async def scenario() -> None:
        opened = asyncio.Semaphore(0)
        tasks = [asyncio.create_task(read(opened)) for _ in range(100)]
        for _ in tasks:
            await opened.acquire()
        for number in range(10):
            await asyncio.to_thread(served.lake.append, ORDERS, orders(10 + number, 100 + number))
        expected = [1, 2, *(n for at in range(10) for n in (10 + at, 100 + at))]
        assert await asyncio.gather(*tasks) == [expected] * 100

    run(scenario)
    assert served.commits_read == 10


def test_slow_reader_gets_everything_and_does_not_grow_the_memory(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it does not read, others do, and what they share stays small."""
    shared = served.http.queries.readers
    shared._max_bytes = 200_000
    monkeypatch.setattr(readers_module, "_MAX_CURSORS", 1)
    commits, wide = 12, "x" * 8_000
    kept: list[int] = []
    opened: list[EventQuery] = []

    def open_query(*arguments: Any) -> EventQuery:
        opened.append(EventQuery(*arguments))
        return opened[-1]

    monkeypatch.setattr(readers_module, "EventQuery", open_query)

    async def scenario() -> None:
        async with (
            served.client.query(ALL) as slow,
            served.client.query(ALL) as slower,
            served.client.query(ALL) as fast,
        ):
            events = fast.events()
            for _ in range(3):
                await anext(events)
            got = 0
            for number in range(commits):
                rows = orders(*range(100), store=number, note=wide)
                await asyncio.to_thread(served.lake.append, ORDERS, rows)
                while got < 100 * (number + 1):
                    event = await anext(events)
                    got += event.name == "change"
                kept.append(shared.kept_bytes)
            late = await asyncio.gather(slow.changes(1_202), slower.changes(1_202))
        for found in late:
            seen = [
                (one.data["row"]["store_id"], one.data["row"]["store_order_id"]) for one in found
            ]
            assert seen == [(2, 1), (2, 2), *((a, b) for a in range(commits) for b in range(100))]

    run(scenario)
    assert len(opened) >= 4, "the slow readers have fallen behind"
    assert 0 < max(kept) <= 200_000 < commits * 100 * len(wide) / 40


def test_readers_that_are_behind_share_what_is_computed(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a restart of the server, when all come back with tokens of about the same time."""
    commits, readers = 20, 30
    for number in range(commits):
        served.lake.append(ORDERS, orders(10 + number))
    computed: list[Chunk] = []

    class Counted(EventQuery):
        def next(self) -> Chunk | None:
            chunk = super().next()
            if chunk is not None:
                computed.append(chunk)
            return chunk

    monkeypatch.setattr(readers_module, "EventQuery", Counted)

    async def read() -> list[int]:
        async with served.client.query(ALL, from_version="0") as answer:
            return numbers(await answer.changes(commits))

    async def scenario() -> None:
        found = await asyncio.gather(*(read() for _ in range(readers)))
        assert found == [[10 + number for number in range(commits)]] * readers

    run(scenario)
    assert commits <= len(computed) <= 3 * commits, "once, and what the first readers took alone"


def test_wrong_requests_are_problems_with_a_place_and_a_hint(served: Served) -> None:
    async def refused(**given: str) -> tuple[int, Any]:
        async with served.client.get(f"/query?{urlencode(given)}") as answer:
            assert answer.headers["content-type"] == "application/problem+json"
            return answer.status, await answer.json()

    async def scenario() -> None:
        status, body = await refused(sql=ALL.replace("*", "stor_id"))
        assert (status, body["code"], body["where"]) == (400, "bad-query", "query:1:8")
        assert body["hint"] == "did you mean `store_id`?"
        status, body = await refused(sql="SELECT stor_id FROM pizza_orders_avro")
        assert (status, body["code"]) == (400, "bad-query")
        assert "store_id" in body["hint"]
        status, body = await refused(sql=ALL.replace("orders", "order"))
        assert (status, body["code"]) == (404, "table-unknown")
        assert ORDERS in body["hint"]
        assert (await refused(sql=ALL, token="1f0c93ae-c0"))[1]["code"] == "bad-token"
        assert (await refused(sql=ALL, from_version="7"))[1]["hint"] == "the newest is 0"
        assert (await refused(sql=ALL, from_version="-1"))[0] == 400
        assert (await refused(sql=ALL, from_version="9" * 30))[0] == 400
        assert (await refused(sql=ALL, since="soon"))[0] == 400
        assert (await refused(sql=ALL, since="1h", new="1"))[0] == 400
        assert (await refused(sql=ALL, tokn="x"))[1]["hint"] == "did you mean `token`?"
        assert (await refused(sql="SELECT 1 FROM pizza_orders_avro", new="1"))[0] == 400
        assert (await refused(sql=f"{ALL} -- {'x' * 17_000}"))[0] == 400
        assert (await refused())[0] == 400

    run(scenario)
    assert served.connected == 0


def test_token_of_another_query_is_refused(served: Served) -> None:
    async def scenario() -> None:
        async with served.client.query(ALL) as answer:
            (change,) = await answer.changes(1)
        async with served.client.query(COUNTS, last=change.id) as answer:
            assert (answer.status, (await answer.json())["code"]) == (400, "bad-token")
        forged = str(change.id).replace("-s0/", "-s0.0/")
        async with served.client.query(ALL, last=forged) as answer:
            assert (answer.status, (await answer.json())["code"]) == (400, "bad-token")

    run(scenario)


@pytest.mark.parametrize("again", [0, 3])
def test_table_that_is_dropped_is_an_error_event(served: Served, again: int) -> None:
    async def scenario() -> None:
        async with served.client.query(ALL) as answer:
            events = answer.events()
            found = [await anext(events) for _ in range(3)]
            shutil.rmtree(served.lake.path / ORDERS)
            for number in range(again):
                served.lake.append(ORDERS, orders(number))
            found += [event async for event in events]
        assert [event.name for event in found[3:]] == ["error"]
        assert found[3].data["code"] == "table-replaced"
        assert found[3].data["hint"]
        async with served.client.query(ALL, last=found[2].id) as answer:
            assert answer.status == (400 if again else 404)
        if again:
            async with served.client.query(ALL) as answer:
                assert numbers(await answer.changes(3)) == [0, 1, 2]

    run(scenario)


def test_versions_that_are_gone_are_gone(served: Served) -> None:
    async def scenario() -> None:
        async with served.client.query(ALL, new="1") as answer:
            columns = await anext(answer.events())
        await served.idle()
        served.lake.append(ORDERS, orders(3))
        served.lake.delta(ORDERS).optimize.compact()
        served.lake.delta(ORDERS).vacuum(
            retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True
        )
        async with served.client.query(ALL, last=columns.id) as answer:
            assert (answer.status, (await answer.json())["code"]) == (410, "version-vacuumed")

    run(scenario)


def test_stopping_ends_streams_and_readers_go_on_with_the_next_server(lake: QueryLake) -> None:
    lake.append(ORDERS, orders(1))

    async def scenario() -> None:
        first = Served(lake)
        async with first.client.query(ALL) as answer:
            (change,) = await answer.changes(1)
            stopping = asyncio.to_thread(first.stop)
            rest, _ = await asyncio.gather(answer.body(), stopping)
            assert rest == b""
        lake.append(ORDERS, orders(2))
        second = Served(lake)
        async with second.client.query(ALL, last=change.id) as answer:
            assert numbers(await answer.changes(1)) == [2]
        await asyncio.to_thread(second.stop)

    run(scenario)


def test_readers_that_leave_leave_nothing_behind(served: Served) -> None:
    async def scenario() -> None:
        for sql in (ALL, COUNTS, f"{ALL} LIMIT 1"):
            async with served.client.query(sql) as answer:
                await answer.changes(1)
        await served.idle()

    run(scenario)


def test_keep_alive_carries_the_position(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.serve.http._KEEP_ALIVE_SECONDS", 0.2)

    async def scenario() -> None:
        none = ALL.replace("EMIT", "WHERE store_id = 9 EMIT")
        async with served.client.query(none) as answer:
            events = answer.events()
            await anext(events)
            served.lake.append(ORDERS, orders(3))
            while True:
                event = await anext(events)
                assert (event.name, event.data) == ("", None)
                if str(event.id).endswith("-c1"):
                    break

    run(scenario)


def test_number_of_readers_is_limited(lake: QueryLake) -> None:
    lake.append(ORDERS, orders(1))
    served = Served(lake, max_readers=1)

    async def scenario() -> None:
        async with served.client.query(ALL) as answer:
            await anext(answer.events())
            async with served.client.query(ALL) as refused:
                assert (refused.status, refused.headers["retry-after"]) == (503, "5")
            async with served.client.get("/health") as health:
                assert await health.json() == {"ok": True, "readers": 1}

    try:
        run(scenario)
    finally:
        served.stop()


def test_requests_need_the_token_if_there_is_one(lake: QueryLake) -> None:
    lake.append(ORDERS, orders(1))
    served = Served(lake, host="0.0.0.0", token="s3cret")
    path = f"/query?sql={quote('SELECT 1 AS one FROM pizza_orders_avro')}"

    async def scenario() -> None:
        for header in ({}, {"Authorization": "Bearer s3cre"}, {"Authorization": "Basic s3cret"}):
            async with served.client.get(path, **header) as answer:
                assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
                assert "s3cret" not in await answer.text()
        async with served.client.get(path, Authorization="Bearer s3cret") as answer:
            assert await answer.json() == [{"one": 1}]
        async with served.client.get("/health") as answer:
            assert answer.status == 200

    try:
        run(scenario)
    finally:
        served.stop()


def test_address_that_others_can_reach_needs_a_token(lake: QueryLake) -> None:
    with pytest.raises(HeadgateError, match="token"):
        HttpServer(lake.pipeline, host="0.0.0.0")


def test_local_server_answers_only_to_local_names(served: Served) -> None:
    async def scenario() -> None:
        for name, status in {"localhost:8321": 200, "evil.example": 401}.items():
            async with served.client.get("/", Host=name) as answer:
                assert answer.status == status
                assert ("silver_pizza" in await answer.text()) == (status == 200)

    run(scenario)


def test_port_that_is_taken_is_an_error(served: Served) -> None:
    with pytest.raises(HeadgateError) as raised:
        HttpServer(served.lake.pipeline, port=served.client.port)
    assert raised.value.code == "port-in-use"
