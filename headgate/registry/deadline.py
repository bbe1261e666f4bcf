"""A deadline for all that a request reads and writes.

The client of confluent-kafka limits how long a single read may take. A server that sends a byte now
and then, in the head or the body of a response, would keep it for as long as it likes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

MAX_RESPONSE_SIZE = 64 << 20
"""Bytes read for one request."""


class Deadline:
    """When the requests of a thread must be over, and how much they may still read."""

    def __init__(self) -> None:
        self._of_thread = threading.local()

    @contextmanager
    def until(self, time: float) -> Iterator[None]:
        """Let requests of this thread end by a time of the monotonic clock."""
        self._of_thread.time, self._of_thread.size = time, MAX_RESPONSE_SIZE
        try:
            yield
        finally:
            del self._of_thread.time

    def limit(self, seconds: float | None) -> float | None:
        """Return how long a step may take. Raises `TimeoutError` if the time is over."""
        time: float | None = getattr(self._of_thread, "time", None)
        if time is None:
            return seconds
        left = time - monotonic()
        if left <= 0:
            raise TimeoutError("Timeout of the whole request")
        return left if seconds is None else min(seconds, left)

    def count(self, size: int) -> None:
        if getattr(self._of_thread, "time", None) is None:
            return
        self._of_thread.size -= size
        if self._of_thread.size < 0:
            raise ValueError(f"the response is larger than {MAX_RESPONSE_SIZE} bytes")

    def apply_to(self, session: Any) -> None:
        """Limit the connections of an HTTP client, which has no setting for that."""
        for transport in (session._transport, *session._mounts.values()):
            pool = getattr(transport, "_pool", None)
            if pool is not None:
                pool._network_backend = _Network(pool._network_backend, self)


class _Network:
    """Opens connections that end with a deadline."""

    def __init__(self, network: Any, deadline: Deadline) -> None:
        self._network = network
        self._deadline = deadline

    def connect_tcp(self, *args: Any, timeout: float | None = None, **more: Any) -> Any:
        opened = self._network.connect_tcp(*args, timeout=self._deadline.limit(timeout), **more)
        return _Connection(opened, self._deadline)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)


class _Connection:
    """A connection whose reads, writes and handshake end with a deadline."""

    def __init__(self, connection: Any, deadline: Deadline) -> None:
        self._connection = connection
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data: bytes = self._connection.read(max_bytes, timeout=self._deadline.limit(timeout))
        self._deadline.count(len(data))
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._connection.write(buffer, timeout=self._deadline.limit(timeout))

    def start_tls(
        self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None
    ) -> _Connection:
        limit = self._deadline.limit(timeout)
        encrypted = self._connection.start_tls(ssl_context, server_hostname, limit)
        return _Connection(encrypted, self._deadline)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)
