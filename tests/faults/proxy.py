"""A TCP proxy on localhost that can delay, cut and falsify what a server answers."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Literal

HOST = "127.0.0.1"
_CHUNK = 1 << 14
_GARBAGE = b"\x00\xff<html>\r\n\r\n{" * 8


@dataclass(frozen=True)
class Fault:
    """How a proxy treats the answers of its server."""

    kind: Literal["none", "slow", "reset", "silent", "truncated", "garbage"] = "none"
    seconds: float = 0.0
    """Delay of each portion of an answer, if `slow`."""
    after: int = 0
    """Number of bytes of answers that each connection passes on before the fault."""


HEALTHY = Fault()


class Proxy:
    """Forwards connections to a port. `fault` can be changed at any time, from any thread."""

    def __init__(self, target: int, port: int = 0) -> None:
        self._target = target
        self._listening = socket.create_server((HOST, port))
        self.port: int = self._listening.getsockname()[1]
        self.fault = HEALTHY
        self.connections = 0
        """Number of connections so far."""
        self.faults = 0
        """Number of times that a fault was applied."""
        self._open: set[asyncio.Task[None]] = set()

    async def serve(self, until: asyncio.Event) -> None:
        server = await asyncio.start_server(self._accept, sock=self._listening)
        await until.wait()
        server.close()
        for connection in self._open:
            connection.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        # Connections close in the next turn of the loop.
        await asyncio.sleep(0.05)

    def _accept(self, client: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        self.connections += 1
        connection = asyncio.get_running_loop().create_task(self._connect(client, answers))
        self._open.add(connection)
        connection.add_done_callback(self._open.discard)

    async def _connect(self, client: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        with suppress(OSError), _closing(answers):
            server, requests = await asyncio.open_connection(HOST, self._target)
            with _closing(requests):
                forward = asyncio.create_task(_copy(client, requests))
                try:
                    await self._answer(server, answers)
                finally:
                    forward.cancel()

    async def _answer(self, server: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        passed = 0
        while portion := await server.read(_CHUNK):
            fault = self.fault
            if fault.kind != "none" and passed + len(portion) > fault.after:
                self.faults += 1
                kept = portion[: max(0, fault.after - passed)]
                match fault.kind:
                    case "slow":
                        await asyncio.sleep(fault.seconds)
                    case "silent":
                        # For good: an answer after a missing one would be garbage.
                        await asyncio.sleep(3600)
                    case "truncated":
                        await _write(answers, kept)
                        return
                    case "garbage":
                        await _write(answers, kept + _GARBAGE)
                        return
                    case "reset":
                        await _write(answers, kept)
                        _reset(answers)
                        return
            await _write(answers, portion)
            passed += len(portion)


@contextmanager
def _closing(connection: asyncio.StreamWriter) -> Iterator[None]:
    try:
        yield
    finally:
        connection.close()


async def _copy(source: asyncio.StreamReader, destination: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while portion := await source.read(_CHUNK):
            await _write(destination, portion)
        destination.write_eof()


async def _write(destination: asyncio.StreamWriter, portion: bytes) -> None:
    destination.write(portion)
    await destination.drain()


def _reset(connection: asyncio.StreamWriter) -> None:
    """Close a connection with RST instead of FIN."""
    linger = struct.pack("ii", 1, 0)
    connection.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    connection.transport.abort()


@contextmanager
def proxy_to(target: int, port: int = 0) -> Iterator[Proxy]:
    """Run a proxy to a port in a thread of its own."""
    proxy = Proxy(target, port)
    loop = asyncio.new_event_loop()
    ended = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(proxy.serve(ended),))
    thread.start()
    try:
        yield proxy
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()
