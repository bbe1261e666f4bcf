"""Spark's daemon of Python workers, with the seams of tasks armed in each worker."""

from __future__ import annotations

import socket

from pyspark import daemon

_worker = daemon.worker


def _armed_worker(sock: socket.socket, authenticated: bool) -> int:
    # Not in the daemon itself: it forks, and must not have threads.
    from tests.kills.launch import arm_as_launched

    arm_as_launched()
    return _worker(sock, authenticated)


if __name__ == "__main__":
    daemon.worker = _armed_worker
    daemon.manager()
