"""A proxy in front of an object store that throttles, drops connections and loses responses."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

_SLOW_DOWN = (
    b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nContent-Length: 71\r\n"
    b"Connection: close\r\n\r\n"
    b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message/></Error>    "
)


@dataclass
class Faults:
    """How many requests go wrong, and how many did."""

    share: float
    seed: int = 0
    throttled: int = 0
    dropped: int = 0
    lost: int = 0
    """Requests that the store carried out, but without a response."""
    _random: random.Random = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def next(self) -> str | None:
        with self._lock:
            if self._random.random() >= self.share:
                return None
            kind = self._random.choice(("throttled", "dropped", "lost"))
            setattr(self, kind, getattr(self, kind) + 1)
            return kind


@contextmanager
def faulty_proxy(port: int, faults: Faults) -> Iterator[int]:
    """Forward connections to a port of this machine; yield the port of the proxy."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as server:
        accepting = threading.Thread(target=_accept, args=(server, port, faults), daemon=True)
        accepting.start()
        yield server.getsockname()[1]


def _accept(server: socket.socket, port: int, faults: Faults) -> None:
    while True:
        try:
            client, _ = server.accept()
        except OSError:
            return
        threading.Thread(target=_serve, args=(client, port, faults), daemon=True).start()


def _serve(client: socket.socket, port: int, faults: Faults) -> None:
    """Forward the requests of a connection, one after the other."""
    with suppress(OSError), client, socket.create_connection(("127.0.0.1", port)) as store:
        while (head := _head(client)) is not None:
            fault = faults.next()
            if fault == "dropped":
                return
            body = _body(client, head)
            if fault == "throttled":
                client.sendall(_SLOW_DOWN)
                return
            store.sendall(head + body)
            answer = _head(store)
            if answer is None:
                return
            is_head = head.startswith(b"HEAD ")
            rest = b"" if is_head else _body(store, answer)
            if fault == "lost":
                return
            client.sendall(answer + rest)


def _head(stream: socket.socket) -> bytes | None:
    received = bytearray()
    while not received.endswith(b"\r\n\r\n"):
        one = stream.recv(1)
        if not one:
            return None
        received += one
    return bytes(received)


def _body(stream: socket.socket, head: bytes) -> bytes:
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(b":") for line in head.split(b"\r\n")[1:])
    }
    if headers.get(b"transfer-encoding", b"").lower() == b"chunked":
        return _chunks(stream)
    status = head.split(b" ", 2)[1]
    length = 0 if status in (b"204", b"304") else int(headers.get(b"content-length", b"0"))
    return _exactly(stream, length)


def _chunks(stream: socket.socket) -> bytes:
    received = bytearray()
    while True:
        line = bytearray()
        while not line.endswith(b"\r\n"):
            line += _exactly(stream, 1)
        received += line
        size = int(line.strip().split(b";")[0], 16)
        received += _exactly(stream, size + 2)
        if size == 0:
            return bytes(received)


def _exactly(stream: socket.socket, length: int) -> bytes:
    received = bytearray()
    while len(received) < length:
        some = stream.recv(min(1 << 16, length - len(received)))
        if not some:
            raise ConnectionError
        received += some
    return bytes(received)
