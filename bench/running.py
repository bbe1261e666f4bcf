"""A run that goes on while data arrives."""

from __future__ import annotations

from queue import SimpleQueue
from threading import Thread
from typing import Self

from headgate.config import PipelineConfig
from headgate.engine.events import Event
from headgate.engine.runner import RunOptions
from headgate.run import run_pipeline
from headgate.sources.stop_signal import StopSignal

_TIMEOUT = 300
"""Seconds after which nothing is expected any more."""


class Running:
    """A run in a thread, for as long as a block lasts."""

    def __init__(self, pipeline: PipelineConfig) -> None:
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._stop = StopSignal()
        options = RunOptions(trigger_milliseconds=100)
        self._run = Thread(
            target=run_pipeline, args=(pipeline, options, self._events.put, self._stop)
        )

    def __enter__(self) -> Self:
        self._run.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.request()
        self._run.join()

    def next_event(self) -> Event:
        return self._events.get(timeout=_TIMEOUT)
