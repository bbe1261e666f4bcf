from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import headgate
from headgate.engine.events import Event, PredictionFailed, TrainingStarted
from headgate.inspect.status import read_status
from headgate.lake.ledger_entries import AccuracyEntry
from headgate.lake.ledger_snapshot import LedgerSnapshot
from headgate.models.accuracy import Accuracy, Retraining
from tests.models.orders import OrdersLake

DONE = 'syntax = "proto3"; message done { int32 store_id = 1; int32 ordered = 2; int32 wait = 3; }'
LABEL = """
    SELECT store_id, timestampadd(MINUTE, -wait, _timestamp) AS at, _timestamp AS known_at,
        CAST(wait AS DOUBLE) AS label
    FROM done
"""


class DoneLake(OrdersLake):
    """A lake whose orders are done after some minutes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, train=headgate.Train(label=LABEL))
        self.ids["done"] = self.register("done-value", DONE)

    def done(self, store: int, minute: float, wait: int) -> Any:
        return self.event("done", {"store_id": store, "wait": wait}, minute)

    def accuracy(self) -> list[AccuracyEntry]:
        ledger = LedgerSnapshot.open(self.pipeline.lake, self.pipeline.ledger, "shop")
        return [row.entry for row in ledger.entries(AccuracyEntry)]


@pytest.fixture
def lake(tmp_path: Path) -> DoneLake:
    found = DoneLake(tmp_path)
    found.models.promote(5, trained_mae=2.0)
    return found


def test_truth_is_compared_with_the_prediction_of_its_time(lake: DoneLake) -> None:
    run = lake.start()
    lake.land_in(run, lake.order(1, 0))
    lake.land_in(run, lake.order(1, 1))
    lake.land_in(run, lake.done(1, 8, wait=8))
    assert [(one.truths, one.mae, one.trained_mae) for one in lake.accuracy()] == [(1, 3.0, 2.0)]
    lake.land_in(run, lake.done(1, 16, wait=15))
    assert [(one.truths, one.mae) for one in lake.accuracy()][1:] == [(2, 4.0)]


def test_error_is_that_of_the_model_that_serves(lake: DoneLake) -> None:
    lake.land([lake.order(1, 0)])
    lake.land([lake.done(1, 8, wait=8)])
    lake.models.promote(6)
    lake.land([lake.order(1, 10)])
    lake.land([lake.done(1, 24, wait=14)])
    last = lake.accuracy()[-1]
    assert (last.model, last.truths, last.mae) == ("models:/shop-waits/2", 1, 2.0)


def test_broken_label_is_reported_and_nothing_stops(tmp_path: Path) -> None:
    train = headgate.Train(label="SELECT store_id, _timestamp AS at FROM orders")
    lake = OrdersLake(tmp_path, train=train)
    lake.models.promote(5)
    lake.land([lake.order(1, 0)])
    assert len(lake.waits()) == 1
    (failed,) = lake.of(PredictionFailed)
    assert "`known_at`, `label`" in failed.text


def test_status_has_the_error_of_predictions(lake: DoneLake) -> None:
    lake.land([lake.order(1, 0)])
    lake.land([lake.done(1, 8, wait=8)])
    (found,) = read_status(lake.pipeline).predictions
    assert (found.name, found.table, found.rows, found.model) == (
        "waits", "waits", 1, "models:/shop-waits/1",
    )  # fmt: skip
    assert (found.truths, found.mae, found.drift) == (1, 3.0, 1.5)


class FakeProcess:
    """A training that ends when it is told to."""

    def __init__(self, command: list[str], **_: object) -> None:
        self.command = command
        self.code: int | None = None

    def poll(self) -> int | None:
        return self.code


def retraining(
    folder: Path, events: list[Event], **more: Any
) -> tuple[Retraining, list[FakeProcess]]:
    started: list[FakeProcess] = []

    def start(command: list[str], **given: object) -> FakeProcess:
        started.append(FakeProcess(command, **given))
        return started[-1]

    train = headgate.Train(label=LABEL, every=more.pop("every", None))
    log = str(folder / "logs" / "waits.log")
    names = "shop.yaml", "waits", "waits"
    return Retraining(*names, train, log, events.append, start=start, **more), started


DRIFTED = Accuracy("models:/m/1", truths=100, mae=4.0, trained_mae=2.0)


def test_drift_starts_a_training_once(tmp_path: Path) -> None:
    events: list[Event] = []
    found, started = retraining(tmp_path, events)
    assert found.follow(DRIFTED) == ()
    found.follow(DRIFTED)
    assert [one.command[-4:] for one in started] == [["model", "train", "shop.yaml", "waits"]]
    assert "2.0 times" in events[0].text
    started[0].code = 0
    (entry,) = found.follow(DRIFTED)
    assert entry.error is None
    found.follow(DRIFTED)
    assert len(started) == 1


def test_small_or_unproven_error_starts_no_training(tmp_path: Path) -> None:
    found, started = retraining(tmp_path, [])
    found.follow(None)
    found.follow(Accuracy("models:/m/1", truths=100, mae=2.9, trained_mae=2.0))
    found.follow(Accuracy("models:/m/1", truths=3, mae=9.0, trained_mae=2.0))
    found.follow(Accuracy("models:/m/1", truths=100, mae=9.0, trained_mae=None))
    assert not started


def test_training_is_due_after_its_interval(tmp_path: Path) -> None:
    day = headgate.Duration(days=1)
    last = datetime.now(UTC) - timedelta(hours=23)
    found, started = retraining(tmp_path, [], every=day, last=last)
    found.follow(None)
    assert not started
    found.last = last - timedelta(hours=2)
    events: list[Event] = []
    found.listener = events.append
    found.follow(None)
    assert len(started) == 1
    assert isinstance(events[0], TrainingStarted)


def test_failed_training_is_reported(tmp_path: Path) -> None:
    events: list[Event] = []
    found, started = retraining(tmp_path, events)
    found.follow(DRIFTED)
    started[0].code = 1
    (entry,) = found.follow(DRIFTED)
    assert entry.error == "exit code 1"
    assert isinstance(events[-1], PredictionFailed)
