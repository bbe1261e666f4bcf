"""The same batches into a folder and into an object store on the same machine."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rich.table import Table

from headgate.config import Delta, PipelineConfig, Registry, Storage, Wrapper
from headgate.engine.events import BatchLanded, Event
from headgate.engine.runner import RunOptions
from headgate.lab.destination import DeltaDestination
from headgate.lab.games import GamesPlan, simulate_games
from headgate.lab.object_store import BUCKET, ObjectStore
from headgate.registry.folder import FolderRegistry
from headgate.run import run_pipeline

_BATCHES = 6
"""The first one, which creates the tables, is not counted."""


@dataclass(frozen=True)
class OnStorage:
    """Batches into one place."""

    where: str
    seconds: float
    """Of a batch; the median."""
    commits: float
    requests: float
    """To the store, per table and batch."""


def measure_storage(
    store: ObjectStore,
    folder: Path,
    tables: int,
    batch: int,
    rounds: int,
    say: Callable[[str], None],
) -> list[OnStorage]:
    """Both places take turns. A session can reach the store from its start."""
    say(f"{tables} tables: writing {_BATCHES * batch:,} records")
    size = _send(folder, tables, batch)
    landed: dict[str, list[tuple[BatchLanded, int]]] = {"object store": [], "folder": []}
    for number in range(rounds):
        for where, batches in landed.items():
            is_store = where == "object store"
            lake = f"s3://{BUCKET}/{number}" if is_store else str(folder / str(number))
            storage = store.settings if is_store else Storage()
            batches += _land(_pipeline(folder, lake, storage, size), store)[1:]
            say(f"{where}, round {number + 1} of {rounds}: {batches[-1][0].seconds:.2f} s")
    return [_figures(where, batches, tables) for where, batches in landed.items()]


def _figures(where: str, batches: list[tuple[BatchLanded, int]], tables: int) -> OnStorage:
    return OnStorage(
        where,
        median(batch.seconds for batch, _ in batches),
        median(batch.commit_seconds for batch, _ in batches),
        median(requests for _, requests in batches) / tables,
    )


def _send(folder: Path, tables: int, batch: int) -> int:
    """Write the records of all batches; return the bytes of one."""
    inbox = folder / "inbox"
    for seed in range(_BATCHES):
        plan = GamesPlan(tables, versions=3, records=batch, seed=seed)
        with closing(FolderRegistry(folder / "schemas")) as registry:
            for _ in simulate_games(plan, registry, DeltaDestination(str(inbox), "games")):
                pass
    return sum(file.stat().st_size for file in inbox.glob("*.parquet")) // _BATCHES


def _pipeline(folder: Path, lake: str, storage: Storage, size: int) -> PipelineConfig:
    return PipelineConfig(
        name="bench",
        source=Delta(path=str(folder / "inbox"), batch=f"{size} B"),
        registry=Registry(folder=str(folder / "schemas")),
        envelope=Wrapper(
            message="wrapper", route="game_name", schema_id="schema_id", payload="payload"
        ),
        lake=lake,
        storage=storage,
    )


def _land(pipeline: PipelineConfig, store: ObjectStore) -> list[tuple[BatchLanded, int]]:
    """Land everything; return the batches, each with the number of requests to the store."""
    batches: list[tuple[BatchLanded, int]] = []
    before = _requests(store)

    def listen(event: Event) -> None:
        nonlocal before
        if isinstance(event, BatchLanded):
            now = _requests(store)
            batches.append((event, now - before))
            before = now

    run_pipeline(pipeline, RunOptions(once=True), listen)
    return batches


def _requests(store: ObjectStore) -> int:
    with store.requests.open("rb") as log:
        return sum(1 for _ in log)


def storage_table(found: list[OnStorage], tables: int, batch: int) -> Table:
    title = (
        f"{batch:,} records a batch into {tables} tables: a folder, and an object store beside it"
    )
    table = Table(title=title)
    for name in (
        "where",
        "a batch",
        "rows/s",
        "of the folder",
        "of it commits",
        "requests a table",
    ):
        table.add_column(name, justify="left" if name == "where" else "right")
    local = next(one for one in found if one.where == "folder")
    for one in found:
        table.add_row(
            one.where,
            f"{one.seconds:.2f} s",
            f"{batch / one.seconds:,.0f}",
            f"{local.seconds / one.seconds:.2f}",
            f"{one.commits:.2f} s",
            f"{one.requests:.1f}",
        )
    return table
