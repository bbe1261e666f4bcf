"""Many readers of queries in one process, on one event loop.

What a query returns is computed once for all readers near its head: a shared stream keeps the
newest chunks, up to a number of bytes, and goes no further ahead than its fastest reader needs. A
reader that has fallen behind computes its own chunks from its token, until it is near the head
again. Only a few readers do so at a time, and one that does not take what it has asked for loses
its place: a slow reader costs time, not memory.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from headgate.serve.catalog import Catalog
from headgate.serve.events import Chunk, EventQuery
from headgate.serve.push import Start
from headgate.sql.parse import sql_of
from headgate.sql.query import QueryText

_POLL_SECONDS = 0.1
_THREADS = 4
_MAX_OWN = 8
"""Readers that compute their own chunks at the same time."""
_STALLED_SECONDS = 1.0
_KEPT_BYTES = 64 << 20
"""The size of the chunks that all shared streams keep together."""
_AHEAD = 0.25
"""The share of kept chunks that the fastest reader has not taken yet."""
_CHUNK_OVERHEAD = 500

_Result = TypeVar("_Result")


class Readers:
    """All readers of one process, and the streams that they share."""

    def __init__(self, catalog: Catalog, kept_bytes: int = _KEPT_BYTES) -> None:
        self.catalog = catalog
        self.streams: dict[str, SharedStream] = {}
        self.stopped = False
        self._kept_bytes = kept_bytes
        self._own: set[Reader] = set()
        self._threads = ThreadPoolExecutor(_THREADS, "query")

    def open(self, query: QueryText, start: Start) -> Reader:
        return Reader(self, query, start)

    def stop(self) -> None:
        """Let all readers return, so that their connections can be closed."""
        self.stopped = True
        for stream in self.streams.values():
            stream.wake()

    @property
    def bytes_for_each(self) -> int:
        return self._kept_bytes // max(1, len(self.streams))

    async def run(self, function: Callable[..., _Result], *arguments: object) -> _Result:
        """Call a function in a thread, because it reads files."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, function, *arguments)

    async def take_place(self, reader: Reader) -> None:
        """Wait until a reader may compute its own chunks."""
        while len(self._own) >= _MAX_OWN and reader not in self._own:
            stalled = [one for one in self._own if one.is_stalled]
            if stalled:
                min(stalled, key=lambda one: one.used_at).release()
            else:
                await asyncio.sleep(_POLL_SECONDS)
        self._own.add(reader)

    def leave_place(self, reader: Reader) -> None:
        self._own.discard(reader)


class Reader:
    """One reader of a query."""

    def __init__(self, readers: Readers, query: QueryText, start: Start) -> None:
        self._readers, self._text, self._start = readers, query.text, start
        # Readers that write names in another case get other names of columns.
        self._query = sql_of(query.tree)
        self._own: EventQuery | None = None
        self._stream: SharedStream | None = None
        self._computes = False
        self.names: tuple[str, ...] = ()
        """The columns of the result when it was opened."""
        self.token = ""
        """Continues after the last chunk."""
        self.place = 0
        """The number of the next chunk of the shared stream."""
        self.used_at = time.monotonic()

    async def open(self) -> None:
        """Find the tables and columns of the query. Raises `HeadgateError` if it is wrong."""
        own = await self._opened()
        self.names, self.token = own.names, own.token

    async def next(self, seconds: float) -> Chunk | None:
        """Return the next chunk, which may have no events; None if there is none for a while."""
        chunk = await self._next(seconds)
        if chunk is not None:
            self.token = chunk.after
        return chunk

    def release(self) -> None:
        """Forget what only this reader has; it is computed again from the token."""
        self._own = None
        self._readers.leave_place(self)

    def close(self) -> None:
        self.release()
        if self._stream is not None:
            self._stream.leave(self)
            self._stream = None

    @property
    def is_stalled(self) -> bool:
        """Whether no chunk has been requested for some time."""
        return not self._computes and time.monotonic() - self.used_at > _STALLED_SECONDS

    async def _next(self, seconds: float) -> Chunk | None:
        if self._stream is None:
            self._join()
        if self._stream is not None:
            try:
                return await self._stream.next(self, seconds)
            except Behind:
                self._stream.leave(self)
                self._stream = None
        chunk = await self._compute()
        if chunk is None and self._stream is None and not self._lead():
            await asyncio.sleep(_POLL_SECONDS)
        return chunk

    def _join(self) -> None:
        """Go on with the shared stream if it has what comes after the token."""
        stream = self._readers.streams.get(self._query)
        place = stream.place_of(self.token) if stream is not None else None
        if stream is not None and place is not None:
            self.place = place
            self._enter(stream)

    def _lead(self) -> bool:
        """Make the query of this reader the head of a shared stream, if there is none.

        A stream that waits for slow readers does not come this far: this one replaces it.
        """
        stream = self._readers.streams.get(self._query)
        if self._own is None or (stream is not None and not stream.waits):
            return False
        if stream is not None:
            stream.close()
        self.place = 0
        self._enter(SharedStream(self._readers, self._query, self._own))
        return True

    def _enter(self, stream: SharedStream) -> None:
        self._stream = stream
        stream.enter(self)
        self.release()

    async def _compute(self) -> Chunk | None:
        own = await self._opened()
        return await self._in_thread(own.next)

    async def _opened(self) -> EventQuery:
        if self._own is None:
            await self._readers.take_place(self)
            start = Start(token=self.token) if self.token else self._start
            self._own = await self._in_thread(EventQuery, self._readers.catalog, self._text, start)
        return self._own

    async def _in_thread(self, function: Callable[..., _Result], *arguments: object) -> _Result:
        self._computes = True
        try:
            return await self._readers.run(function, *arguments)
        finally:
            self._computes, self.used_at = False, time.monotonic()


class Behind(Exception):
    """A shared stream no longer has the next chunk of a reader."""


class SharedStream:
    """The newest chunks of one query."""

    def __init__(self, readers: Readers, query: str, head: EventQuery) -> None:
        self._readers, self._query, self._head = readers, query, head
        self._kept: deque[tuple[Chunk, int]] = deque()
        """Chunks, and the number of bytes before each of them."""
        self._first = 0
        """The number of the first chunk that is kept."""
        self._places: dict[str, int] = {}
        """Numbers of chunks by the tokens before them."""
        self._token = head.token
        self._bytes = 0
        self._of: set[Reader] = set()
        self._failed: Exception | None = None
        self._closed = False
        self._news, self._room = asyncio.Event(), asyncio.Event()
        self.waits = False
        """Whether the head waits for readers."""
        readers.streams[query] = self
        self._task = asyncio.create_task(self._advance())

    @property
    def kept_bytes(self) -> int:
        return self._bytes - self._kept[0][1] if self._kept else 0

    def place_of(self, token: str) -> int | None:
        """Return the number of the chunk after a token; None if it is not kept."""
        return self._places.get(token, self._end if token == self._token else None)

    def enter(self, reader: Reader) -> None:
        self._of.add(reader)

    def leave(self, reader: Reader) -> None:
        self._of.discard(reader)
        self._room.set()
        if not self._of:
            self.close()

    def close(self) -> None:
        """Send readers that are left on their own way."""
        self._closed = True
        self._kept.clear()
        self._task.cancel()
        self._forget()
        self.wake()

    def wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def next(self, reader: Reader, seconds: float) -> Chunk | None:
        """Return the next chunk of a reader; None if there is none for a while."""
        while True:
            if self._closed or reader.place < self._first:
                raise Behind
            if reader.place < self._end:
                chunk, _ = self._kept[reader.place - self._first]
                reader.place += 1
                self._room.set()
                return chunk
            if self._failed is not None:
                raise self._failed
            if self._readers.stopped:
                return None
            try:
                async with asyncio.timeout(seconds):
                    await self._news.wait()
            except TimeoutError:
                return None

    async def _advance(self) -> None:
        """Take one chunk after the other from the head."""
        try:
            while True:
                await self._wait_for_readers()
                chunk = await self._readers.run(self._head.next)
                if chunk is None:
                    await asyncio.sleep(_POLL_SECONDS)
                else:
                    self._keep(chunk)
                    self.wake()
        except Exception as error:
            self._failed = error
            self._forget()
            self.wake()

    async def _wait_for_readers(self) -> None:
        while self._ahead > _AHEAD * self._readers.bytes_for_each:
            self.waits = True
            self._room.clear()
            await self._room.wait()
        self.waits = False

    @property
    def _ahead(self) -> int:
        """The number of bytes that the fastest reader has not taken yet."""
        place = max((one.place for one in self._of), default=self._end)
        if place >= self._end:
            return 0
        return self._bytes - self._kept[max(place, self._first) - self._first][1]

    @property
    def _end(self) -> int:
        return self._first + len(self._kept)

    def _keep(self, chunk: Chunk) -> None:
        self._places.setdefault(chunk.before, self._end)
        self._kept.append((chunk, self._bytes))
        self._bytes += len(chunk.events) + _CHUNK_OVERHEAD
        self._token = chunk.after
        while self.kept_bytes > self._readers.bytes_for_each and len(self._kept) > 1:
            dropped, _ = self._kept.popleft()
            if self._places.get(dropped.before) == self._first:
                del self._places[dropped.before]
            self._first += 1

    def _forget(self) -> None:
        if self._readers.streams.get(self._query) is self:
            del self._readers.streams[self._query]
