"""Changes of a query as server-sent events, encoded a chunk at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headgate.as_json import json_text
from headgate.serve.catalog import Catalog
from headgate.serve.push import Change, ColumnsAdded, Portion, PushQuery, Start
from headgate.serve.worker import BoundedSql

_CHUNK_CHANGES = 200
_CHUNK_BYTES = 64 << 10
_CHANGE, _END = b"event: change\n", b"\n\n"
ENDED = "end"
"""The id of the last event at LIMIT: who reconnects with it has everything."""


@dataclass(frozen=True)
class Chunk:
    """Some events, and the tokens that continue before and after them."""

    before: str
    after: str
    changes: int
    events: bytes

    def first(self, count: int) -> Chunk:
        """Return the first changes, or all if there are not so many."""
        if count >= self.changes:
            return self
        cut = self.events.index(_CHANGE)
        for _ in range(count):
            cut = self.events.index(_END, cut) + len(_END)
        return Chunk(self.before, self.after, count, self.events[:cut])


class EventQuery:
    """A push query that returns chunks of events. Not safe for several threads."""

    def __init__(self, catalog: Catalog, text: str, start: Start, sql: BoundedSql) -> None:
        self.sql = sql
        self._query = PushQuery(catalog, text, start, sql)
        self.token = self._query.token
        """Continues after the last chunk."""
        self.holds_rows = False
        """Whether rows of a commit are left for the next chunk."""
        self._new_columns = b""
        self._chunks = self._all()

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of the result."""
        return self._query.names

    def next(self) -> Chunk | None:
        """Return the next chunk, which may have no events; None if there is no new commit."""
        chunk = next(self._chunks)
        if chunk is not None:
            self.token = chunk.after
        return chunk

    def _all(self) -> Iterator[Chunk | None]:
        for portion in self._query.start():
            yield from self._portion(portion)
        if self._query.token != self.token:
            yield self._chunk(self._query.token, [])
        while True:
            found = self._query.poll()
            if found is None:
                yield None
            elif isinstance(found, ColumnsAdded):
                self._new_columns = columns_event(self.names)
            else:
                yield from self._portion(found)

    def _portion(self, portion: Portion) -> Iterator[Chunk]:
        bytes_each = portion.rows.bytes // max(1, len(portion.rows))
        count = max(1, min(_CHUNK_CHANGES, _CHUNK_BYTES // max(1, bytes_each)))
        for part in portion.parts(count):
            self.holds_rows = part.token != portion.token
            yield self._chunk(part.token, [*map(_change, part.changes())])

    def _chunk(self, after: str, events: list[bytes]) -> Chunk:
        columns, self._new_columns = self._new_columns, b""
        return Chunk(self.token, after, len(events), b"".join([columns, *events]))


def _change(change: Change) -> bytes:
    return event("change", change.record, change.token)


def event(name: str, data: object, token: str | None = None) -> bytes:
    """Return one event; its id is the token that continues after it."""
    at = f"id: {token}\n" if token else ""
    return f"event: {name}\n{at}data: {json_text(data)}\n\n".encode()


def columns_event(names: tuple[str, ...], token: str | None = None) -> bytes:
    return event("columns", {"columns": names}, token)


def end_event(changes: int) -> bytes:
    return event("end", {"changes": changes}, ENDED)


def keep_alive(token: str) -> bytes:
    """Return a comment, with an id for readers whose query has not changed for a while.

    An event without data is not dispatched, but its id counts.
    """
    return f": keep-alive\nid: {token}\n\n".encode()
