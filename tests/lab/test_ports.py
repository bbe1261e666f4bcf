from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from headgate.errors import SetupError
from headgate.lab.process import HOST, choose_port, is_free, is_listening


@pytest.fixture
def busy_port() -> Iterator[int]:
    with socket.create_server((HOST, 0)) as server:
        yield server.getsockname()[1]


def test_busy_port_is_refused_and_its_owner_named(busy_port: int) -> None:
    with pytest.raises(SetupError, match=f"port {busy_port} for the broker is in use") as caught:
        choose_port("broker", requested=busy_port)
    assert caught.value.code == "port-in-use"
    assert f"(pid {os.getpid()})" in caught.value.message


def test_same_port_twice_is_refused() -> None:
    port = choose_port("broker", requested=None)
    with pytest.raises(SetupError) as caught:
        choose_port("registry", requested=port, taken={port})
    assert caught.value.code == "port-in-use"


def test_previous_port_is_reused_if_free(busy_port: int) -> None:
    free = choose_port("broker", requested=None)
    assert choose_port("broker", requested=None, previous=free) == free
    assert choose_port("broker", requested=None, previous=free, taken={free}) != free
    assert choose_port("broker", requested=None, previous=busy_port) != busy_port


def test_requested_port_precedes_the_previous_one() -> None:
    free, last = choose_port("broker", requested=None), choose_port("broker", requested=None)
    assert choose_port("broker", requested=free, previous=last) == free


def test_listening_port_answers_and_is_not_free(busy_port: int) -> None:
    assert is_listening(busy_port)
    assert not is_free(busy_port)
    free = choose_port("broker", requested=None)
    assert not is_listening(free)
    assert is_free(free)
