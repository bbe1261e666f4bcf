"""Ports on this machine: a free one, or the one that was asked for and nothing else."""

from __future__ import annotations

import socket
from collections.abc import Collection

import psutil

from headgate.errors import SetupError

HOST = "127.0.0.1"


def choose_port(
    purpose: str, *, asked: int | None, last: int | None = None, taken: Collection[int] = ()
) -> int:
    """The port asked for if it is free, else the one of last time if it is free, else any."""
    if asked is not None:
        if asked in taken or not is_free(asked):
            raise SetupError(
                "port-in-use",
                f"port {asked} for the {purpose} is taken{_by_whom(asked)}",
                hint="choose another port, or none: then a free one is taken",
            )
        return asked
    if last is not None and last not in taken and is_free(last):
        return last
    while (port := _any_free_port()) in taken:
        pass
    return port


def is_free(port: int) -> bool:
    """Whether a server could listen on the port."""
    with socket.socket() as probe:
        # Servers set it too: connections that are still closing do not keep a port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def is_answering(port: int) -> bool:
    """Whether something listens on the port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0


def _any_free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _by_whom(port: int) -> str:
    try:
        for connection in psutil.net_connections("tcp"):
            listens_on = connection.laddr.port if connection.laddr else None
            if connection.status == psutil.CONN_LISTEN and listens_on == port and connection.pid:
                return f" by {psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except psutil.Error:
        # Some systems show other users' connections to root only.
        pass
    return ""
