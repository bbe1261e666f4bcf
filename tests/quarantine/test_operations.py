"""Replay and drop for a pipeline file: lock, committer, and Spark only if needed."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable, TableFeatures

from headgate.engine.events import BatchLanded, Event
from headgate.errors import CheckpointError, LandingError
from headgate.lake.run_lock import run_lock
from headgate.quarantine.filter import QuarantineFilter
from headgate.quarantine.operations import drop_quarantine, replay_quarantine
from tests.inspect.quarantined_lake import RUBBISH, UNKNOWN, make_quarantined_lake
from tests.inspect.small_lake import SmallLake
from tests.readers import by_deltalake

_REPLAY = """
import sys
from headgate.config import load_pipeline
from headgate.quarantine.operations import replay_quarantine
done = replay_quarantine(load_pipeline(sys.argv[1]))
print(sum(done.landed.values()), "pyspark" in sys.modules)
"""


@pytest.fixture
def lake(tmp_path: Path) -> SmallLake:
    return make_quarantined_lake(tmp_path)


def offsets(lake: SmallLake) -> Counter[int]:
    found: Counter[int] = Counter()
    for table in Path(lake.pipeline.lake).glob("silver_*"):
        found.update(by_deltalake(str(table)).column("_offset").to_pylist())
    return found


def test_replay_lands_records_whose_schema_is_known_now(lake: SmallLake) -> None:
    events: list[Event] = []
    done = replay_quarantine(lake.pipeline, listener=events.append)
    assert (done.taken, sum(done.landed.values())) == (UNKNOWN + RUBBISH, UNKNOWN)
    assert sum(done.remaining.values()) == RUBBISH
    assert offsets(lake) == Counter(range(20 + UNKNOWN))
    assert [event.rows for event in events if isinstance(event, BatchLanded)] == [UNKNOWN]


def test_replay_does_not_import_spark_without_need(lake: SmallLake) -> None:
    run = subprocess.run(
        [sys.executable, "-c", _REPLAY, str(lake.file)], capture_output=True, text=True, check=True
    )
    assert run.stdout == f"{UNKNOWN} False\n"


def test_replay_without_a_quarantine_does_nothing(tmp_path: Path) -> None:
    done = replay_quarantine(SmallLake(tmp_path).pipeline)
    assert (done.taken, done.landed, done.completed) == (0, {}, False)
    assert drop_quarantine(SmallLake(tmp_path).pipeline, QuarantineFilter()) == {}


def test_concurrent_replays_are_refused(lake: SmallLake) -> None:
    lock = run_lock(lake.pipeline.lake, "games.replay", "games")
    with lock, pytest.raises(CheckpointError) as caught:
        replay_quarantine(lake.pipeline)
    assert caught.value.code == "quarantine-in-use"
    assert "process" in caught.value.message
    assert replay_quarantine(lake.pipeline).taken == UNKNOWN + RUBBISH


def test_replay_runs_while_the_stream_runs(lake: SmallLake) -> None:
    with run_lock(lake.pipeline.lake, "games", "games"):
        assert replay_quarantine(lake.pipeline).taken == UNKNOWN + RUBBISH


def test_nothing_lands_if_the_quarantine_cannot_be_updated(lake: SmallLake) -> None:
    path = str(Path(lake.pipeline.lake, lake.pipeline.quarantine_table))
    DeltaTable(path).alter.add_feature(
        TableFeatures.RowTracking, allow_protocol_versions_increase=True
    )
    with pytest.raises(LandingError) as caught:
        replay_quarantine(lake.pipeline.model_copy(update={"commit": "delta-rs"}))
    assert caught.value.code == "quarantine-unwritable"
    assert "commit: auto" in (caught.value.hint or "")
    assert offsets(lake) == Counter(range(20))


def test_python_example_of_the_guide_runs(lake: SmallLake) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "quarantine.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    run = subprocess.run(
        [sys.executable, "-c", block], cwd=lake.folder, capture_output=True, text=True, check=True
    )
    assert "silver_chess" in run.stdout
