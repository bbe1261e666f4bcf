"""Real runs that are killed: driver, Java and the tasks of Spark at once."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import uuid4

import pytest
from deltalake import DeltaTable

from headgate.config import Registry
from headgate.lab.destination import KafkaDestination
from headgate.lab.games import GamesPlan
from headgate.lab.object_store import ObjectStore
from headgate.lab.services import Services
from headgate.lab.shop.simulate import DatabaseModel, ShopPlan, simulate_shop
from tests.kills.launch import launch
from tests.kills.seams import DERIVING, LANDING, MERGING
from tests.kills.test_kills import KILLED, print_counts
from tests.kills.workloads import assert_merged, read
from tests.run.conftest import places, simulate

Turn = tuple[str, int]
"""A seam, and at which of its calls to kill."""

MOST_CALLS = 6


def kill_runs(
    file: Path, first: Sequence[Turn], others: Sequence[str], cases: int, more: Callable[[], None]
) -> None:
    """Kill runs at given seams, then at random ones, and complete the last."""
    seed = int(os.environ.get("KILLS_SEED") or random.randrange(10**6))
    print(f"KILLS_SEED={seed}")
    chance = random.Random(seed)
    kills: Counter[str] = Counter()
    for number in range(cases):
        more()
        given = first[number : number + 1]
        seam, nth = given[0] if given else (chance.choice(others), chance.randint(1, MOST_CALLS))
        calls = file.parent / "calls" / str(number)
        run = launch(["headgate", "run", str(file), "--once", "--json"], calls, seam, nth)
        assert run.returncode in ((KILLED,) if given else (KILLED, 0)), (seam, nth, run.stderr)
        kills[seam] += run.returncode == KILLED
        print(f"{seam} ({nth})", flush=True)
    last = launch(["headgate", "run", str(file), "--once", "--json"], file.parent / "calls" / "end")
    assert last.returncode == 0, last.stdout + last.stderr
    print_counts(kills)


Place = tuple[str, Path]
"""The lake in the pipeline file, and the folder that it is in."""


@pytest.fixture(params=["folder", "store"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "folder":
        return "lake: ./lake", tmp_path / "lake"
    storage: ObjectStore = request.getfixturevalue("storage")
    url: str = request.getfixturevalue("new_lake")()
    keys = storage.settings
    text = f"""
lake: {url}
storage:
  {{endpoint: "{keys.endpoint}", access_key: "{keys.access_key}", secret_key: "{keys.secret_key}"}}
"""
    return text, storage.folder_of(url)


@pytest.mark.soak
@pytest.mark.parametrize("cases", [20])
def test_killed_runs_of_a_topic(
    services: Services, tmp_path: Path, place: Place, cases: int
) -> None:
    topic = f"games-{uuid4().hex[:8]}"
    file = tmp_path / "games.yaml"
    file.write_text(
        f"""
name: games
source:
  kafka: {{servers: "{services.servers}", topics: [{topic}], batch: 600}}
registry: {services.registry}
envelope:
  wrapper: {{message: wrapper, route: game_name, schema_id: schema_id, payload: payload}}
{place[0]}
bronze: bronze_games
gold:
  players_{{route}}: SELECT user_name, count(*) AS sessions FROM silver GROUP BY user_name
  names_{{route}}: SELECT user_name FROM silver
"""
    )
    sent = 0

    def send() -> None:
        nonlocal sent
        seed = sent // 1500
        plan = GamesPlan(tables=3, versions=1 + seed % 5, records=1500, bad_share=0.02, seed=seed)
        simulate(plan, Registry(url=services.registry), KafkaDestination(services.servers, topic))
        sent += 1500

    first = [("staging", 4), ("between-derived", 2), ("after-ledger", 2)]
    others = [
        seam.name
        for seam in (*LANDING, *DERIVING)
        # Their schemas fit as they are, and no table is pending.
        if seam.name not in ("file-refitted", "refitted-original-deleted", "files-rewritten")
    ]
    kill_runs(file, first, others, cases, send)

    lake = str(place[1])
    found = places(lake) + places(lake, "quarantine")
    assert found.total() == sent
    assert set(found.values()) == {1}
    assert set(places(lake, "bronze_games").values()) == {1}
    for silver in Path(lake).glob("silver_*"):
        game = silver.name.removeprefix("silver_")
        players = Counter(row["user_name"] for row in read(silver))
        names = read(silver.with_name(f"names_{game}"))
        assert Counter(row["user_name"] for row in names) == players
        derived = read(silver.with_name(f"players_{game}"))
        assert {row["user_name"]: row["sessions"] for row in derived} == players


@pytest.mark.soak
@pytest.mark.parametrize("cases", [20])
def test_killed_runs_of_change_files(tmp_path: Path, place: Place, cases: int) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        f"""
name: shop
source: {{files: {{path: ./landing, files_per_batch: 6}}}}
envelope: datastream
{place[0]}
history: history_{{database}}_{{table}}
gold:
  all_rows: SELECT route, count(*) AS rows FROM merged GROUP BY route
"""
    )
    model = DatabaseModel()
    made = tmp_path / "made"
    plan = ShopPlan(made, changes=60 * cases, changes_per_file=10, duplicates=0.2, shuffled=True)
    for _ in simulate_shop(plan, model):
        pass
    files = sorted(made.rglob("*.avro"))
    random.Random(3).shuffle(files)
    (tmp_path / "landing").mkdir()

    size = len(files) // cases + 1

    def arrive() -> None:
        share = files[:size]
        del files[:size]
        for one in share:
            shutil.copy(one, tmp_path / "landing" / one.name)

    first = [("between-merged-and-history", 2)]
    others = [seam.name for seam in (*LANDING, *MERGING, *DERIVING)]
    kill_runs(file, first, others, cases, arrive)

    lake = place[1]
    rows = {name: [dict(row) for row in table.rows] for name, table in model.tables.items()}
    assert_merged(lake, rows)
    derived = DeltaTable(lake / "all_rows").to_pyarrow_table().to_pylist()
    counts = {f"shop_{table}": len(of_table) for table, of_table in rows.items() if of_table}
    assert {row["route"]: row["rows"] for row in derived} == counts
