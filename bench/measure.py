"""What a run costs: time, processor time and memory of this process and all it started."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

_EVERY = 0.5
"""Seconds from one look at the memory to the next."""


@dataclass
class Cost:
    """Filled in when the measured block ends."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_bytes: int = 0


@contextmanager
def measured(apart: Collection[int] = (), every: float = _EVERY) -> Iterator[Cost]:
    """Measure a block, but for processes that are `apart`.

    Memory is proportional: pages shared by processes count once. To look at it takes time.
    """
    cost, done = Cost(), threading.Event()

    def watch() -> None:
        while not done.is_set():
            cost.peak_bytes = max(cost.peak_bytes, _memory(apart))
            done.wait(every)

    watcher = threading.Thread(target=watch, daemon=True)
    began, cpu = time.perf_counter(), _cpu(apart)
    watcher.start()
    try:
        yield cost
    finally:
        cost.seconds = time.perf_counter() - began
        cost.cpu_seconds = _cpu(apart) - cpu
        done.set()
        watcher.join()


def _tree(apart: Collection[int]) -> list[psutil.Process]:
    me = psutil.Process()
    return [one for one in (me, *me.children(recursive=True)) if one.pid not in apart]


def _cpu(apart: Collection[int]) -> float:
    total = 0.0
    for process in _tree(apart):
        try:
            times = process.cpu_times()
            total += times.user + times.system
        except psutil.NoSuchProcess:
            continue
    return total


def _memory(apart: Collection[int]) -> int:
    total = 0
    for process in _tree(apart):
        try:
            total += process.memory_full_info().pss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return total
