"""Whole runs on a standalone cluster that shares nothing with the driver but the object store."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

import psutil
import pytest

from headgate.lab.cluster import Cluster, has_other_user, local_cluster
from headgate.lab.destination import DeltaDestination
from headgate.lab.games import GamesPlan, simulate_games
from headgate.lab.object_store import ObjectStore
from headgate.lab.shop.simulate import ShopPlan, simulate_shop
from headgate.lake.log import read_entries, versions_of_entries
from headgate.lake.snapshot import Snapshot
from headgate.lake.storage import find_files
from headgate.lake.tables import tables_in
from headgate.registry.folder import FolderRegistry
from tests.cluster.land import upload
from tests.conftest import INTERPRETED
from tests.registry.fake_registry import FakeRegistry, Response, fake_registry, folder_responses
from tests.storage.land_twice import require_same
from tests.storage.simulated import require_real

PASSWORD = "canary-of-the-registry"
_PATIENCE = 60.0
_PATIENT_SECONDS = 300


@dataclass
class Landing:
    """Two pipelines with sources and lakes in the object store, and what runs of them print."""

    folder: Path
    url: str
    store: ObjectStore
    cluster: Cluster
    registry: FakeRegistry
    printed: str = ""
    commands: set[str] = field(default_factory=set)
    """Command lines of all processes while tasks run."""
    faults: list[str] = field(default_factory=list)

    def run(self, *command: str) -> str:
        """Run a command in a folder of its own, with secrets in its environment."""
        access, secret = self.store.settings.access_key, self.store.settings.secret_key
        assert access is not None
        assert secret is not None
        keys = {"S3_KEY": access.resolve(), "S3_SECRET": secret.resolve(), "PASSWORD": PASSWORD}
        work = self.folder / "work"
        work.mkdir(exist_ok=True)
        root = str(Path(__file__).parents[2])
        done = subprocess.run(
            [sys.executable, *command],
            cwd=work,
            env={**os.environ, **keys, "PYTHONPATH": root},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=_PATIENT_SECONDS,
        )
        assert done.returncode == 0, done.stdout
        self.printed += done.stdout
        return done.stdout

    def ledger_commits(self) -> int:
        folder = self.store.folder_of(f"{self.url}/games/ledger/_delta_log")
        return len([*folder.glob("*.json")])


def _wait_for(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + _PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _write_pipelines(folder: Path, url: str, store: ObjectStore, registry: str) -> None:
    storage = f"""
lake: {url}/NAME
storage:
  endpoint: {store.settings.endpoint}
  access_key: env:S3_KEY
  secret_key: env:S3_SECRET
spark:
  spark.executor.memory: 1g
  spark.driver.host: 127.0.0.1
  spark.executor.extraJavaOptions: -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
"""
    storage += "".join(f"  {key}: {value}\n" for key, value in INTERPRETED.items())
    (folder / "games.yaml").write_text(
        f"""
name: games
source: {{delta: {{path: {url}/inbox}}}}
registry: {{url: "{registry}", username: headgate, password: env:PASSWORD}}
envelope:
  wrapper: {{message: wrapper, route: game_name, schema_id: schema_id, payload: payload}}
"""
        + storage.replace("NAME", "games")
    )
    (folder / "shop.yaml").write_text(
        f"name: shop\nsource: {{files: {{path: {url}/landing}}}}\nenvelope: datastream\n"
        "history: history_{database}_{table}\n" + storage.replace("NAME", "shop")
    )


def _simulate(folder: Path) -> list[set[int]]:
    """Write three waves of games and a shop; return the schemas that are new in each wave."""
    new: list[set[int]] = []
    known: set[int] = set()
    with closing(FolderRegistry(folder / "schemas")) as registry:
        for wave, tables in enumerate((2, 4, 6)):
            # Two files, so that there are two tasks.
            for part in (1, 2):
                plan = GamesPlan(tables, versions=2, records=1_000, bad_share=0.02, seed=part)
                to = DeltaDestination(str(folder / "inbox"), "games")
                for _ in simulate_games(plan, registry, to):
                    pass
            shutil.copytree(folder / "inbox", folder / f"wave-{wave}")
            ids = {int(one.name.split(".")[0]) for one in (folder / "schemas").iterdir()}
            new.append(ids - known)
            known = ids
    shop = ShopPlan(folder / "landing", changes=600, seed=1, changes_per_file=150)
    for _ in simulate_shop(shop):
        pass
    return new


@contextmanager
def _cluster() -> Iterator[Cluster]:
    """Run a cluster in a folder that another user can enter."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    try:
        with local_cluster(folder, workers=2) as cluster:
            yield cluster
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _hold_a_task_until_its_copy_lands(landing: Landing, schema: int) -> Callable[[], Response]:
    """Answer the first request for a schema only after the batch has landed without it."""
    found = landing.registry.responses[f"/schemas/ids/{schema}"]
    first = threading.Lock()

    def respond() -> Response:
        assert isinstance(found, Response)
        if first.acquire(blocking=False):
            landed = landing.ledger_commits()
            if _wait_for(lambda: landing.ledger_commits() > landed):
                landing.faults.append("speculated")
        return found

    return respond


def _kill_a_worker_in_the_batch(landing: Landing, schema: int) -> Callable[[], Response]:
    """Kill a worker and its executor once both executors need a schema."""
    found = landing.registry.responses[f"/schemas/ids/{schema}"]
    both = threading.Barrier(2)

    def respond() -> Response:
        assert isinstance(found, Response)
        if "killed" not in landing.faults:
            try:
                if both.wait(_PATIENCE) == 0:
                    landing.commands |= {
                        " ".join(each.info["cmdline"] or ())
                        for each in psutil.process_iter(["cmdline"])
                    }
                    worker = psutil.Process(landing.cluster.workers[0].pid)
                    for process in [worker, *worker.children(recursive=True)]:
                        process.kill()
                    landing.faults.append("killed")
            except threading.BrokenBarrierError:
                landing.faults.append("not in one batch")
        return found

    return respond


@pytest.fixture(scope="module")
def landing(storage: ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Landing]:
    require_real(storage)
    folder = tmp_path_factory.mktemp("driver")
    url = "s3://lake/cluster"
    with _cluster() as cluster:
        # Workers start meanwhile.
        _, second, third = _simulate(folder)
        responses = folder_responses(FolderRegistry(folder / "schemas"))
        with fake_registry(responses) as registry:
            landing = Landing(folder, url, storage, cluster, registry)
            _write_pipelines(folder, url, storage, registry.url)
            _declare(landing)
            upload(folder / "wave-0", f"{url}/inbox")
            upload(folder / "landing", f"{url}/landing")
            master = ("--master", cluster.url, "--conf", "spark.cores.max=1")
            landing.run("-m", "headgate", "submit", f"{folder}/games.yaml", "--once", *master)
            for schema, respond in (
                (min(second), _hold_a_task_until_its_copy_lands),
                (min(third), _kill_a_worker_in_the_batch),
            ):
                responses[f"/schemas/ids/{schema}"] = respond(landing, schema)
            landing.run("-m", "tests.cluster.land", str(folder), cluster.url)
            yield landing


def _declare(landing: Landing) -> None:
    from headgate.config.storage import declare_storage

    declare_storage(landing.store.settings, landing.url)


def _said(landing: Landing, key: str) -> list[object]:
    lines = [line for line in landing.printed.splitlines() if line.startswith(f'{{"{key}"')]
    (line,) = lines
    said: list[object] = json.loads(line)[key]
    return said


def test_every_record_is_in_one_place(landing: Landing) -> None:
    lake = f"{landing.url}/games"
    landed = [table for table in tables_in(lake) if table.startswith(("silver_", "quarantine"))]
    counts = {table: _open(lake, table).row_count() for table in landed}
    assert len(counts) == 7
    assert sum(counts.values()) == _open(str(landing.folder), "inbox").row_count() == 6_000


def test_changes_are_merged_once(landing: Landing) -> None:
    assert "Traceback" not in landing.run("-m", "headgate", "verify", f"{landing.folder}/shop.yaml")


def _open(lake: str, table: str) -> Snapshot:
    snapshot = Snapshot.open(lake, table)
    assert snapshot is not None
    return snapshot


@pytest.mark.soak
def test_tables_are_the_same_as_on_one_machine(landing: Landing) -> None:
    landing.run("-m", "tests.cluster.land", str(landing.folder), "local[2]")
    for name in ("games", "shop"):
        here, there = f"{landing.folder}/lake/{name}", f"{landing.url}/{name}"
        # All waves are one batch here. A merge that runs twice adds its tombstones twice.
        require_same(here, there, {"_batch"}, repeatable="_tombstones_")


def test_faults_have_happened(landing: Landing) -> None:
    """A task's copy landed while the task was blocked; a worker was killed in a batch."""
    assert landing.faults == ["speculated", "killed"]


def test_executors_have_nothing_but_the_pack(landing: Landing) -> None:
    root = str(Path(__file__).parents[2])
    executors = _said(landing, "executors")
    assert len(executors) == 2
    for one in executors:
        assert isinstance(one, dict)
        assert one["headgate"].startswith(f"{one['folder']}/headgate-packages/headgate/")
        assert one["folder"].startswith(str(landing.cluster.folder))
        assert one["home"].startswith(str(landing.cluster.folder))
        assert root not in one["path"].split(os.pathsep)
        assert not has_other_user() or one["user"] != 0


@pytest.mark.skipif(not has_other_user(), reason="executors have the same user, who sees it")
def test_lake_that_executors_do_not_see_is_refused(landing: Landing) -> None:
    code, where, _ = _said(landing, "refused")
    assert (code, where) == ("folder-not-shared", str(landing.folder / "private"))


def test_secrets_are_in_no_command_line_and_no_log(landing: Landing) -> None:
    assert landing.store.settings.secret_key is not None
    logs = [path.read_text("utf-8", "replace") for path in landing.cluster.folder.glob("*.log")]
    for secret in (PASSWORD, landing.store.settings.secret_key.resolve()):
        assert secret not in landing.printed
        assert not [text for text in (*landing.commands, *logs) if secret in text]
    assert any("CoarseGrainedExecutorBackend" in command for command in landing.commands)


def test_registry_gets_the_password_from_executors(landing: Landing) -> None:
    assert landing.registry.authorizations - {None}


@pytest.mark.parametrize("name", ["games", "shop"])
def test_maintenance_leaves_no_orphan(landing: Landing, name: str) -> None:
    """Killed and repeated tasks have written files that no commit has; merges keep theirs a day."""
    two_days_ago = time.time() - 2 * 24 * 3600
    for file in landing.store.folder_of(f"{landing.url}/{name}").rglob("*.parquet"):
        os.utime(file, (two_days_ago, two_days_ago))
    printed = landing.run("-m", "headgate", "maintain", f"{landing.folder}/{name}.yaml", "--json")
    maintained = json.loads(printed[printed.index("{") :])["data"]["tables"]
    assert not [one for one in maintained if one["error"]]
    assert name == "shop" or any(
        file["kind"] == "staged file" for one in maintained for file in one["deletions"]
    )
    tables = [one["table"] for one in maintained if one["table"] != "_staged"]
    assert len(tables) > 2
    for table in tables:
        url = f"{landing.url}/{name}/{table}"
        names = {file.path for file in find_files(url)}
        entries = read_entries(url, versions_of_entries(Path(one).name for one in names))
        known = {
            unquote(file["path"])
            for entry in entries
            for file in (*entry.added_files, *entry.removed_files)
        }
        assert {one for one in names if not one.startswith("_delta_log/")} <= known
