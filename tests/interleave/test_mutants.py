"""Faults that are put into the product on purpose: the interleavings find each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import pytest

from headgate.cdc import unmerged
from headgate.cdc.unmerged import MergePlan
from headgate.lake import compact, delta_rs, disk, log_files, orphans
from headgate.lake.commit import Commit
from headgate.lake.conflicts import Cause, Conflict
from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.lake.files import FoundFile, Identity
from headgate.lake.log_files import TableLog
from headgate.lake.tables import NotWritable
from headgate.lake.writers import LakeWriters, StagedFiles
from tests.interleave import maintenance
from tests.interleave.changes_world import ChangesWorld
from tests.interleave.pipelines_world import PipelinesWorld
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


def _staged(change: Callable[[StagedFiles], StagedFiles]) -> AbstractContextManager[object]:
    """Tell maintenance of one table something else about staged files."""
    return patch.object(maintenance, "StagedFiles", lambda *given: change(StagedFiles(*given)))


def _next_batches_too(staged: StagedFiles) -> StagedFiles:
    writers = {
        name: replace(writer, landed=(writer.landed or 0) + 1)
        for name, writer in staged.writers.items()
    }
    return replace(staged, writers=writers)


def _without_pending(real: Callable[[Any], StagedFiles], writers: Any) -> StagedFiles:
    return replace(real(writers), pending=frozenset())


def _ignoring(*causes: Cause) -> AbstractContextManager[object]:
    """Let commits follow others in spite of some conflicts."""

    def conflict(real: Callable[..., Conflict | None], *given: Any) -> Conflict | None:
        found = real(*given)
        return None if found is not None and found.cause in causes else found

    return _wrapped(delta_rs, "conflict", conflict)


def _ignoring_obstacles() -> AbstractContextManager[object]:
    def require(real: Callable[..., None], *given: Any) -> None:
        with suppress(NotWritable):
            real(*given)

    return _wrapped(DeltaRsCommitter, "_require", require)


class _AnyEntry:
    """An identity that is equal to all others."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


def _same_entry(real: Callable[..., Any], *given: Any) -> Any:
    return _AnyEntry()


@contextmanager
def _both(*patches: AbstractContextManager[object]) -> Iterator[None]:
    with ExitStack() as stack:
        for each in patches:
            stack.enter_context(each)
        yield


def _losing_a_row() -> AbstractContextManager[object]:
    return _wrapped(
        compact,
        "stage_rows",
        lambda real, lake, table, rows, **named: real(lake, table, rows.slice(1), **named),
    )


MUTANTS = [
    Mutant("entries replace each other", TablesWorld, _overwriting_entries),
    Mutant(
        "compaction follows a commit that has replaced the same files",
        TablesWorld,
        lambda: _ignoring(Cause.FILES),
        "several compactions",
    ),
    Mutant(
        "conflicts are not about metadata",
        TablesWorld,
        lambda: _ignoring(Cause.METADATA),
    ),
    Mutant(
        "conflicts are not about marks",
        TablesWorld,
        lambda: _ignoring(Cause.MARK),
    ),
    Mutant(
        "commits follow another table of the same name",
        TablesWorld,
        lambda: _wrapped(delta_rs, "identify_entry", _same_entry),
        "recreated",
    ),
    Mutant(
        "obstacles are ignored",
        TablesWorld,
        _ignoring_obstacles,
        "partitioned by a user",
    ),
    Mutant("compaction loses a row", TablesWorld, _losing_a_row),
    Mutant(
        "orphans include deletion vectors that versions have",
        TablesWorld,
        lambda: _wrapped(log_files, "is_vector", lambda real, path: False),
        "deletion vectors",
    ),
    Mutant(
        "expiry takes files that later versions have",
        TablesWorld,
        lambda: patch.object(TableLog, "named", lambda *_: set()),
        "restored",
    ),
    Mutant(
        "refitted files of pending batches are orphans at once",
        TablesWorld,
        lambda: _both(
            _all_files_old(), _wrapped(orphans, "original_path", lambda real, path: path)
        ),
        "pending beside maintenance",
    ),
    Mutant(
        "clean-up takes files of the next batch at once",
        TablesWorld,
        lambda: _both(_all_files_old(), _staged(_next_batches_too)),
        "pending beside maintenance",
    ),
    Mutant(
        "clean-up takes pending files at once",
        TablesWorld,
        lambda: _both(
            _all_files_old(), _staged(lambda staged: replace(staged, pending=frozenset()))
        ),
        "pending beside maintenance",
    ),
    Mutant(
        "clean-up takes pending files of other pipelines",
        PipelinesWorld,
        lambda: _wrapped(LakeWriters, "staged", _without_pending),
        "maintenance by another pipeline",
        seeds=10,
    ),
    Mutant(
        "merges do not require the mark that they continue from",
        ChangesWorld,
        lambda: _commit_as(lambda commit: replace(commit, required_marks={})),
        "overlapping merges without a key",
    ),
    Mutant(
        "merges follow other merges",
        ChangesWorld,
        lambda: _ignoring(Cause.ROWS, Cause.MARK),
        "overlapping merges of history",
    ),
    Mutant(
        "a log that was created again is the same log",
        ChangesWorld,
        lambda: patch.object(MergePlan, "app_for", lambda plan, log_id: plan.app),
        "log recreated",
    ),
    Mutant(
        "rows that a user has restored stay",
        ChangesWorld,
        lambda: patch.object(unmerged, "changed_by_others", lambda *_: False),
        "merged table restored",
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
