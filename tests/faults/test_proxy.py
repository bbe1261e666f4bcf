from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from tests.faults.proxy import HEALTHY, HOST, Fault, Proxy, proxy_to

ANSWER = b"pong " * 10


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """A proxy to a server that answers every request alike."""
    with socket.create_server((HOST, 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    while connection.recv(100):
                        connection.sendall(ANSWER)

        thread = threading.Thread(target=serve)
        thread.start()
        with proxy_to(listening.getsockname()[1]) as proxy:
            yield proxy
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


def ask(proxy: Proxy) -> bytes:
    """Return what a client gets until the connection ends, or is silent for a while."""
    with socket.create_connection((HOST, proxy.port), timeout=0.5) as client:
        client.sendall(b"ping")
        client.shutdown(socket.SHUT_WR)
        got = b""
        while portion := client.recv(1000):
            got += portion
        return got


def test_healthy_and_slow_proxies_pass_answers_on(proxy: Proxy) -> None:
    assert ask(proxy) == ANSWER
    proxy.fault = Fault("slow", seconds=0.1)
    assert ask(proxy) == ANSWER
    assert (proxy.connections, proxy.faults) == (2, 1)


def test_answers_are_cut_and_falsified(proxy: Proxy) -> None:
    proxy.fault = Fault("truncated", after=7)
    assert ask(proxy) == ANSWER[:7]
    proxy.fault = Fault("garbage")
    assert ANSWER not in ask(proxy) != b""
    proxy.fault = Fault("reset", after=7)
    with pytest.raises(ConnectionResetError):
        ask(proxy)
    proxy.fault = Fault("silent")
    with pytest.raises(TimeoutError):
        ask(proxy)
    proxy.fault = HEALTHY
    assert ask(proxy) == ANSWER
