"""Where actors may be interrupted: before each call of the storage, and of delta-rs."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property, wraps
from inspect import signature
from random import Random
from typing import Any
from unittest.mock import patch

import deltalake
from deltalake import DeltaTable
from deltalake.transaction import create_table_with_add_actions

from headgate.lake import storage
from headgate.lake.files import Files, FoundFile
from tests.interleave.scheduler import Scheduler
from tests.interleave.watched import WatchedLake

_OF_TABLES = ("__init__", "update_incremental", "create_write_transaction", "create_checkpoint")


class SteppingFiles:
    """Files of the disk; each call is a step of the actor that makes it."""

    def __init__(self, files: Files, scheduler: Scheduler, lake: WatchedLake) -> None:
        self._files = files
        self._scheduler = scheduler
        self._lake = lake

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(self._files, name)

        def step(url: str, *arguments: Any) -> Any:
            self._scheduler.step(f"{name} {self._path(url)}")
            if name in ("write", "create", "open_output"):
                self._lake.written(self._path(url))
            if name == "copy":
                self._lake.written(self._path(arguments[0]))
            return function(url, *arguments)

        return step

    def find(self, folder: str, below: bool) -> list[FoundFile]:
        self._scheduler.step(f"find {self._path(folder)}")
        return [
            replace(file, modified=file.modified - self._older(f"{folder}/{file.path}"))
            for file in self._files.find(folder, below)
        ]

    def _older(self, url: str) -> float:
        return self._lake.older(self._path(url))

    def _path(self, url: str) -> str:
        return url.removeprefix(f"{self._lake.path}/")


def product_places(value: object) -> Iterator[tuple[Any, str]]:
    """Yield the modules of the product that have a value, and the name that they have it by."""
    for module_name, module in [*sys.modules.items()]:
        if module_name.partition(".")[0] == "headgate" and module is not None:
            for name, found in [*vars(module).items()]:
                if found is value:
                    yield module, name


@contextmanager
def interruptible(scheduler: Scheduler, lake: WatchedLake) -> Iterator[None]:
    """Let the scheduler interrupt actors, each of which is as a process of its own."""
    with ExitStack() as patches:

        def put(owner: Any, name: str, value: object) -> None:
            patches.enter_context(patch.object(owner, name, value))

        def as_step(function: Callable[..., Any], label: str) -> Callable[..., Any]:
            @wraps(function)
            def step(*arguments: Any, **named: Any) -> Any:
                scheduler.step(label)
                return function(*arguments, **named)

            return step

        put(storage, "_DISK", SteppingFiles(storage._DISK, scheduler, lake))
        for name in _OF_TABLES:
            label = "open" if name == "__init__" else name
            put(DeltaTable, name, as_step(getattr(DeltaTable, name), f"delta-rs {label}"))
        for function in (deltalake.write_deltalake, create_table_with_add_actions):
            for module, name in product_places(function):
                put(module, name, as_step(function, f"delta-rs {name}"))
        for cached in _cached_properties():
            # One lock for all objects of a class, up to Python 3.11: an actor that has lost its
            # turn would keep it.
            put(cached, "lock", nullcontext())
        for cached in _caches_by_place():
            separate = _by_actor(cached, scheduler)
            for module, name in product_places(cached):
                put(module, name, separate)
        ids = Random(scheduler.random.random())
        uuid4 = uuid.uuid4
        put(uuid, "uuid4", lambda: uuid.UUID(int=ids.getrandbits(128), version=4))
        for module, name in product_places(uuid4):
            put(module, name, uuid.uuid4)
        yield


def _cached_properties() -> list[Any]:
    found: dict[int, Any] = {}
    for module_name, module in [*sys.modules.items()]:
        if module_name.startswith("headgate."):
            for owner in [*vars(module).values()]:
                members = vars(owner).values() if isinstance(owner, type) else ()
                found |= {id(each): each for each in members if isinstance(each, cached_property)}
    return [each for each in found.values() if hasattr(each, "lock")]


def _caches_by_place() -> list[Any]:
    """Return the functions that return the same of a lake or a table to the whole process."""
    found: dict[int, Any] = {}
    for module_name, module in [*sys.modules.items()]:
        if module_name.startswith("headgate."):
            for value in [*vars(module).values()]:
                if hasattr(value, "cache_clear") and {"lake", "url"} & {
                    *signature(value).parameters
                }:
                    found[id(value)] = value
    return list(found.values())


def _by_actor(cached: Any, scheduler: Scheduler) -> Callable[..., Any]:
    """Return a cache of which each actor has its own, as if it were a process."""
    made: dict[tuple[Any, ...], Any] = {}

    def of(*arguments: Any) -> Any:
        key = scheduler.actor, *arguments
        if key not in made:
            made[key] = cached.__wrapped__(*arguments)
        return made[key]

    return of
