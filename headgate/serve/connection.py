"""Connections of the server: how many there are, and how long each may take for a request.

uvicorn waits for the head of a request, and for a reader of its response, as long as it takes.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

_RECEIVED = (h11.DONE, h11.MUST_CLOSE)


@dataclass
class Connections:
    """The open connections of one server."""

    most: int
    """More are not opened; instead the one that has waited longest for a request is closed."""
    request_seconds: float = 10
    """For the head of a request, and for its body."""
    stalled_seconds: float = 60
    """For a reader that takes nothing of its response."""
    waiting: dict[Connection, None] = field(default_factory=dict)
    """Those that have not sent a whole request; the oldest first."""
    count: int = 0

    def protocol(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> Connection:
        return Connection(self, config, server_state, app_state, _loop)


class Connection(H11Protocol):
    """A connection with deadlines."""

    def __init__(
        self,
        connections: Connections,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._all = connections
        self._request_deadline = _Deadline()
        self._reader_deadline = _Deadline()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._all.count += 1
        if self._all.count > self._all.most:
            oldest = next(iter(self._all.waiting), self)
            oldest.transport.abort()
            self._all.waiting.pop(oldest, None)
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._all.count -= 1
        self._all.waiting.pop(self, None)
        self._request_deadline.cancel()
        self._reader_deadline.cancel()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._await_request()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._await_request()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._reader_deadline.set(self._all.stalled_seconds, self.transport)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._reader_deadline.cancel()

    def _await_request(self) -> None:
        """Close the connection in a while, unless a whole request is there by then."""
        if self.transport.is_closing() or self.conn.their_state in _RECEIVED:
            self._request_deadline.cancel()
            self._all.waiting.pop(self, None)
        else:
            self._all.waiting.setdefault(self)
            self._request_deadline.set(self._all.request_seconds, self.transport)


class _Deadline:
    """Cuts a connection, unless it is cancelled before."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None

    def set(self, seconds: float, transport: asyncio.Transport) -> None:
        """Begin to wait, unless it has begun before."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(seconds, transport.abort)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
