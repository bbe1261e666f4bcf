"""Many readers of queries in one process, on one event loop.

What comes after a token is computed once for all readers of a query that are there, at the head or
behind it: one cursor reads, and the others wait for it or take the chunk that is kept. Chunks are
kept up to a number of bytes, and of cursors that hold rows only a few. A reader that finds neither
opens a cursor at its token: a slow reader costs time, not memory.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from headgate.serve.catalog import Catalog
from headgate.serve.events import Chunk, EventQuery
from headgate.serve.push import Start
from headgate.serve.worker import BoundedSql, Limits, Workers
from headgate.sql.parse import sql_of
from headgate.sql.query import QueryText

_POLL_SECONDS = 0.1
_THREADS = 4
_MAX_CURSORS = 8
"""Cursors that read what is not new at the same time, and those with rows that rest."""
_KEPT_BYTES = 64 << 20
"""The size of the chunks that are kept for all readers together."""
_CHUNK_OVERHEAD = 500

_Result = TypeVar("_Result")


class Position(NamedTuple):
    """A place in the changes of a query."""

    query: str
    token: str


class Readers:
    """All readers of one process, and what they share."""

    def __init__(self, catalog: Catalog, workers: Workers, kept_bytes: int = _KEPT_BYTES) -> None:
        self.catalog = catalog
        self._workers = workers
        self.stopped = False
        self.kept_bytes = 0
        self._max_bytes = kept_bytes
        self._chunks: OrderedDict[Position, Chunk] = OrderedDict()
        """Chunks by the position before them; the oldest first."""
        self._coming: dict[Position, _Coming] = {}
        self._cursors: OrderedDict[Position, EventQuery] = OrderedDict()
        """Cursors that rest, by their position; the one that has rested longest first."""
        self._places = asyncio.Semaphore(_MAX_CURSORS)
        self._of_query: Counter[str] = Counter()
        self._at: Counter[Position] = Counter()
        self._threads = ThreadPoolExecutor(_THREADS, "query")

    async def open(self, query: QueryText, start: Start) -> Reader:
        """Find the tables and columns of a query. Raises `HeadgateError` if it is wrong."""
        async with self._places:
            cursor = await self._cursor(query.text, start)
        # Readers that write names in another case get other names of columns.
        position = Position(sql_of(query.tree), cursor.token)
        self._of_query[position.query] += 1
        self._at[position] += 1
        self._rest(position, cursor)
        return Reader(self, query.text, position, cursor.names)

    def stop(self) -> None:
        """Let all readers return, so that their connections can be closed."""
        self.stopped = True

    @property
    def is_idle(self) -> bool:
        """Whether nothing is kept or computed for any reader."""
        return not (self._chunks or self._coming or self._cursors or self._of_query or self._at)

    async def after(self, text: str, position: Position, seconds: float) -> Chunk | None:
        """Return the chunk after a position; None if there is none for a while."""
        if (kept := self._chunks.get(position)) is not None:
            return kept
        coming = self._coming.get(position)
        if coming is None:
            coming = self._coming[position] = _Coming()
            coming.task = asyncio.create_task(self._compute(text, position, coming))
            # Its error is not lost if all who wait for it are gone.
            coming.task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await coming.wait(seconds)

    def move(self, position: Position, to: Position) -> None:
        """Note that a reader has gone on."""
        self._at[to] += 1
        self._leave(position)

    def close(self, position: Position) -> None:
        """Note that a reader is gone; what no other reader needs is forgotten."""
        self._leave(position)
        query = position.query
        self._of_query[query] -= 1
        if not self._of_query[query]:
            del self._of_query[query]
            self._cursors = OrderedDict(
                (at, cursor) for at, cursor in self._cursors.items() if at.query != query
            )
            for at in [at for at in self._chunks if at.query == query]:
                self._drop(at)

    def _leave(self, position: Position) -> None:
        self._at[position] -= 1
        if not self._at[position]:
            del self._at[position]
            self._cursors.pop(position, None)
            if (coming := self._coming.pop(position, None)) is not None:
                coming.task.cancel()

    async def _compute(self, text: str, position: Position, coming: _Coming) -> Chunk | None:
        """Return the next chunk for all who wait for it; None if no reader waits."""
        try:
            cursor = self._cursors.pop(position, None)
            async with self._places:
                if cursor is None:
                    start = Start(token=position.token)
                    cursor = await self._cursor(text, start)
                chunk = await self._run(cursor.sql, cursor.next)
            coming.tried.set()
            while chunk is None and coming.waiting and not self.stopped:
                await asyncio.sleep(_POLL_SECONDS)
                chunk = await self._run(cursor.sql, cursor.next)
            if self._at[position]:
                self._rest(Position(position.query, cursor.token), cursor)
            if chunk is not None and self._of_query[position.query] > 1:
                self._keep(position, chunk)
            return chunk
        finally:
            if self._coming.get(position) is coming:
                del self._coming[position]
            coming.tried.set()

    def _rest(self, position: Position, cursor: EventQuery) -> None:
        """Keep a cursor for the next reader at its position."""
        self._cursors[position] = cursor
        with_rows = [at for at, one in self._cursors.items() if one.holds_rows]
        if len(with_rows) > _MAX_CURSORS:
            del self._cursors[with_rows[0]]

    def _keep(self, position: Position, chunk: Chunk) -> None:
        self._chunks[position] = chunk
        self.kept_bytes += len(chunk.events) + _CHUNK_OVERHEAD
        while self.kept_bytes > self._max_bytes and self._chunks:
            self._drop(next(iter(self._chunks)))

    def _drop(self, position: Position) -> None:
        self.kept_bytes -= len(self._chunks.pop(position).events) + _CHUNK_OVERHEAD

    async def _cursor(self, text: str, start: Start) -> EventQuery:
        sql = BoundedSql(self._workers)
        return await self._run(sql, EventQuery, self.catalog, text, start, sql)

    async def _run(
        self, sql: BoundedSql, function: Callable[..., _Result], *arguments: object
    ) -> _Result:
        limits = self._workers.limits
        return await run_bounded(self._threads, sql, limits, function, *arguments)


async def run_bounded(
    threads: ThreadPoolExecutor,
    sql: BoundedSql,
    limits: Limits,
    function: Callable[..., _Result],
    *arguments: object,
) -> _Result:
    """Call a function in a thread, until it takes too long or its reader leaves."""
    future = asyncio.get_running_loop().run_in_executor(threads, function, *arguments)
    # Its error is not lost if the reader has left.
    future.add_done_callback(lambda done: done.cancelled() or done.exception())
    try:
        async with asyncio.timeout(limits.seconds):
            return await asyncio.shield(future)
    except TimeoutError:
        raise limits.too_slow from None
    finally:
        if not future.done():
            future.cancel()
            sql.end(limits.too_slow)


class Reader:
    """One reader of a query."""

    def __init__(
        self, readers: Readers, text: str, position: Position, names: tuple[str, ...]
    ) -> None:
        self._readers, self._text, self._position = readers, text, position
        self.names = names
        """The columns of the result when it was opened."""

    @property
    def token(self) -> str:
        """Continues after the last chunk."""
        return self._position.token

    async def next(self, seconds: float) -> Chunk | None:
        """Return the next chunk, which may have no events; None if there is none for a while."""
        chunk = await self._readers.after(self._text, self._position, seconds)
        if chunk is not None:
            before, self._position = self._position, self._position._replace(token=chunk.after)
            self._readers.move(before, self._position)
        return chunk

    def close(self) -> None:
        self._readers.close(self._position)


class _Coming:
    """A chunk that is computed, and those who wait for it."""

    def __init__(self) -> None:
        self.task: asyncio.Task[Chunk | None]
        self.tried = asyncio.Event()
        """Whether it is known if there is a chunk already."""
        self.waiting = 0

    async def wait(self, seconds: float) -> Chunk | None:
        """Return the chunk; None if there is none yet and none comes in this time."""
        self.waiting += 1
        try:
            await self.tried.wait()
            async with asyncio.timeout(None if self.task.done() else seconds):
                return await asyncio.shield(self.task)
        except TimeoutError:
            return self.task.result() if self.task.done() else None
        finally:
            self.waiting -= 1
