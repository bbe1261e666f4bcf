"""Faults that are put into the product on purpose: the interleavings find each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import pytest

from headgate.lake import compact, disk
from headgate.lake.commit import Commit, TableState
from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.lake.files import FoundFile, Identity
from headgate.lake.maintain import Unfinished
from tests.interleave import maintenance
from tests.interleave.changes_world import ChangesWorld
from tests.interleave.tables_world import TablesWorld
from tests.interleave.world import World, failure_of

_DAYS = 10 * 86400.0


@dataclass(frozen=True)
class Mutant:
    name: str
    world: type[World]
    put: Callable[[], AbstractContextManager[object]]
    """Puts the fault into the product while its context is open."""
    focus: str | None = None
    seeds: int = 40
    """Among which at least one must find it."""


def _wrapped(owner: Any, name: str, change: Callable[..., Any]) -> AbstractContextManager[object]:
    """Replace a function by one that gets it as its first argument."""
    real = getattr(owner, name)
    return patch.object(owner, name, lambda *args, **named: change(real, *args, **named))


def _commit_as(change: Callable[[Commit], Commit]) -> AbstractContextManager[object]:
    return _wrapped(
        DeltaRsCommitter, "commit", lambda real, self, commit: real(self, change(commit))
    )


def _forgetting_marks() -> AbstractContextManager[object]:
    def state(real: Callable[..., Any], *args: Any) -> TableState | None:
        found: TableState | None = real(*args)
        return None if found is None else replace(found, marked=None)

    return _wrapped(DeltaRsCommitter, "state", state)


def _overwriting_entries() -> AbstractContextManager[object]:
    def create(
        real: Callable[..., Any], self: disk.Disk, url: str, content: bytes
    ) -> Identity | None:
        self.write(url, content)
        return self.identify(url)

    return _wrapped(disk.Disk, "create", create)


def _all_files_old() -> AbstractContextManager[object]:
    def find(real: Callable[..., Any], *args: Any) -> list[FoundFile]:
        return [replace(file, modified=file.modified - _DAYS) for file in real(*args)]

    return _wrapped(disk.Disk, "find", find)


def _unfinished(change: Callable[[Mapping[str, int], Any], Unfinished]) -> Any:
    return patch.object(maintenance, "Unfinished", change)


def _losing_a_row() -> AbstractContextManager[object]:
    return _wrapped(
        compact,
        "stage_rows",
        lambda real, lake, table, rows, **named: real(lake, table, rows.slice(1), **named),
    )


MUTANTS = [
    Mutant("state does not return marks", TablesWorld, _forgetting_marks),
    Mutant("entries replace each other", TablesWorld, _overwriting_entries),
    Mutant("all files are old enough to be orphans", TablesWorld, _all_files_old),
    Mutant("compaction loses a row", TablesWorld, _losing_a_row),
    Mutant(
        "clean-up takes files of the next batch",
        TablesWorld,
        lambda: _unfinished(
            lambda landed, pending: Unfinished(
                {writer: batch + 1 for writer, batch in landed.items()}, pending
            )
        ),
    ),
    Mutant(
        "clean-up takes pending files",
        TablesWorld,
        lambda: _unfinished(lambda landed, pending: Unfinished(landed, ())),
        "pending beside maintenance",
    ),
    Mutant(
        "merges do not look for newer versions",
        ChangesWorld,
        lambda: _commit_as(lambda commit: replace(commit, based_on=None)),
        "overlapping derivations",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_found(mutant: Mutant) -> None:
    for seed in range(mutant.seeds):
        with mutant.put():
            failure = failure_of(mutant.world, seed, mutant.focus)
        # The fault is only that of the mutant if the product itself passes.
        if failure is not None and failure_of(mutant.world, seed, mutant.focus) is None:
            print(f"seed {seed}: {failure}")
            return
    pytest.fail(f"{mutant.seeds} seeds have not found it")
