"""Land the same games and the same shop in a folder and in an object store, in one session.

A process of its own: the session of the other tests has no settings for an object store.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection
from contextlib import closing
from pathlib import Path

from headgate.config import (
    Datastream,
    Delta,
    Files,
    PipelineConfig,
    Registry,
    Secret,
    Storage,
    Wrapper,
)
from headgate.engine.runner import RunOptions
from headgate.lab.destination import DeltaDestination
from headgate.lab.games import GamesPlan, simulate_games
from headgate.lab.shop.simulate import ShopPlan, simulate_shop
from headgate.lake.snapshot import Snapshot
from headgate.lake.storage import list_files, write_file
from headgate.lake.tables import tables_in
from headgate.registry.folder import FolderRegistry
from headgate.run import run_pipeline

_GOLD = "SELECT user_name, count(*) AS sessions FROM silver GROUP BY user_name"
_UNION = {"from": "gold_*", "select": "route, user_name, sessions"}
_OWN = {"ledger", "_files"}
_DIFFERENT = {"quarantine": {"id", "_at"}}
"""Columns whose values differ from run to run, by table."""


def games(folder: Path, lake: str, storage: Storage) -> PipelineConfig:
    return PipelineConfig(
        name="games",
        source=Delta(path=str(folder / "inbox")),
        registry=Registry(folder=str(folder / "schemas")),
        envelope=Wrapper(
            message="wrapper", route="game_name", schema_id="schema_id", payload="payload"
        ),
        lake=lake,
        storage=storage,
        bronze="bronze",
        gold={"gold_{route}": _GOLD, "all_gold": _UNION},
    )


def shop(lake: str, storage: Storage, landing: str) -> PipelineConfig:
    return PipelineConfig(
        name="shop",
        source=Files(path=landing),
        envelope=Datastream(),
        lake=lake,
        storage=storage,
        history="history_{database}_{table}",
    )


def send_games(folder: Path, wave: int) -> None:
    plan = GamesPlan(8, versions=3, records=5_000, bad_share=0.02, seed=wave)
    with closing(FolderRegistry(folder / "schemas")) as registry:
        for _ in simulate_games(plan, registry, DeltaDestination(str(folder / "inbox"), "games")):
            pass


def main(folder: Path, store: str, keys: Storage) -> None:
    once = RunOptions(once=True)
    here, there = str(folder / "games"), f"{store}/games"
    for wave in range(3):
        send_games(folder, wave)
        for pipeline in (games(folder, there, keys), games(folder, here, Storage())):
            run_pipeline(pipeline, once)
    require_same(here, there)
    landing = folder / "landing"
    plan = ShopPlan(landing, changes=3_000, seed=1, changes_per_file=400)
    for _ in simulate_shop(plan):
        pass
    here, there = str(folder / "shop"), f"{store}/shop"
    for pipeline in (
        shop(there, keys, str(landing)),
        shop(here, Storage(), str(landing)),
    ):
        run_pipeline(pipeline, once)
    require_same(here, there)
    uploaded, there = f"{store}/landing", f"{store}/shop-of-objects"
    pipeline = shop(there, keys, uploaded)
    for path in list_files(str(landing)):
        write_file(f"{uploaded}/{path}", (landing / path).read_bytes())
    run_pipeline(pipeline, once)
    require_same(here, there, {"_file"})


def require_same(
    here: str, there: str, except_for: Collection[str] = (), repeatable: str | None = None
) -> None:
    """Require the same tables with the same rows; those of a prefix may have a row repeatedly."""
    ours, theirs = tables_in(here), tables_in(there)
    assert ours == theirs, (ours, theirs)
    for table in ours:
        if table not in _OWN:
            ignored = {*except_for, *_DIFFERENT.get(table, ())}
            one, other = (Counter(rows_of(lake, table, ignored)) for lake in (here, there))
            if repeatable is not None and table.startswith(repeatable):
                one, other = Counter({*one}), Counter({*other})
            assert one == other, (table, [*(one - other)][:3], [*(other - one)][:3])
    print(f"{len(ours)} tables are the same")


def rows_of(lake: str, table: str, ignored: Collection[str]) -> list[str]:
    snapshot = Snapshot.open(lake, table)
    assert snapshot is not None
    names = sorted(set(snapshot.schema.names) - {*ignored})
    return [str(names), *sorted(map(str, snapshot.read(names).to_pylist()))]


if __name__ == "__main__":
    work, url, endpoint, key, secret = sys.argv[1:]
    settings = Storage(
        endpoint=endpoint,
        access_key=Secret.parse(f"file:{key}"),
        secret_key=Secret.parse(f"file:{secret}"),
    )
    main(Path(work), url, settings)
