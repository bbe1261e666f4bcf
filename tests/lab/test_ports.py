from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from headgate.errors import SetupError
from headgate.lab.process import HOST, choose_port, is_answering, is_free


@pytest.fixture
def busy_port() -> Iterator[int]:
    with socket.create_server((HOST, 0)) as server:
        yield server.getsockname()[1]


def test_busy_port_is_refused_and_its_owner_named(busy_port: int) -> None:
    with pytest.raises(SetupError, match=f"port {busy_port} for the broker is taken") as caught:
        choose_port("broker", asked=busy_port)
    assert caught.value.code == "port-in-use"
    assert f"(pid {os.getpid()})" in caught.value.message


def test_same_port_twice_is_refused() -> None:
    port = choose_port("broker", asked=None)
    with pytest.raises(SetupError) as caught:
        choose_port("registry", asked=port, taken={port})
    assert caught.value.code == "port-in-use"


def test_port_of_last_time_is_taken_again_if_free(busy_port: int) -> None:
    free = choose_port("broker", asked=None)
    assert choose_port("broker", asked=None, last=free) == free
    assert choose_port("broker", asked=None, last=free, taken={free}) != free
    assert choose_port("broker", asked=None, last=busy_port) != busy_port


def test_port_asked_for_comes_before_the_one_of_last_time() -> None:
    free, last = choose_port("broker", asked=None), choose_port("broker", asked=None)
    assert choose_port("broker", asked=free, last=last) == free


def test_listening_port_answers_and_is_not_free(busy_port: int) -> None:
    assert is_answering(busy_port)
    assert not is_free(busy_port)
    free = choose_port("broker", asked=None)
    assert not is_answering(free)
    assert is_free(free)
