"""A lake of orders for tests of predictions: small tables, models in memory, single batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd

import headgate
from headgate.engine.batch import BatchLander
from headgate.engine.events import Event, Listener
from headgate.engine.follow_up import FollowUp
from headgate.engine.plan import BatchPlan
from headgate.lake.ledger_entries import PredictionEntry
from headgate.lake.ledger_snapshot import LedgerSnapshot
from headgate.models.predict import PredictFollowUp, Prediction
from headgate.sources.batch import Extent
from headgate.testing import InProcessLake, Record
from headgate.testing.lake import stage_in_process
from headgate.testing.records import by_partition, number_records

START = datetime(2026, 1, 5, 18, tzinfo=UTC)
HEAD = 'syntax = "proto3"; message order '
ORDERS = HEAD + "{ int32 store_id = 1; int32 pizzas = 2; }"
WIDER = HEAD + "{ int32 store_id = 1; int32 pizzas = 2; string channel = 3; }"
FEATURES = "SELECT count(*) AS orders, sum(pizzas) AS pizzas FROM orders"
COLUMNS = ("store_id", "prediction", "model")


@dataclass(frozen=True)
class FakeModel:
    """A model that returns a number of minutes per order."""

    uri_with_version: str
    minutes: float | None
    trained_mae: float | None = None

    def predict(self, frame: pd.DataFrame) -> pd.DataFrame:
        if self.minutes is None:
            raise ValueError("the model needs a column `cooks`")
        value = frame["orders"] * self.minutes
        return pd.DataFrame({"prediction": value, "low": value - 1, "high": value + 1})


@dataclass
class FakeRegistry:
    """Versions of one model; the last one is promoted."""

    models: list[FakeModel | Exception] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)

    def promote(self, minutes: float | None, trained_mae: float | None = None) -> None:
        uri = f"models:/shop-waits/{len(self.models) + 1}"
        self.models.append(FakeModel(uri, minutes, trained_mae))

    def promote_broken(self) -> None:
        self.models.append(OSError("the artifact is gone"))

    def current_version(self, uri: str) -> str | None:
        return str(len(self.models)) if self.models else None

    def load_model(self, uri: str) -> FakeModel:
        self.loaded.append(uri)
        _, _, version = uri.rpartition("/")
        found = self.models[int(version) - 1] if version.isdigit() else self.models[-1]
        if isinstance(found, Exception):
            raise found
        return found


class OrdersLake(InProcessLake):
    """A pipeline of orders that predicts `waits` by store; arguments are keys of `predict`."""

    def __init__(self, folder: Path, train: headgate.Train | None = None, **predict: Any) -> None:
        self.models = FakeRegistry()
        declared: dict[str, Any] = {
            "features": FEATURES,
            "key": "store_id",
            "window": headgate.Duration(hours=1),
        }
        super().__init__(
            headgate.Pipeline(
                name="shop",
                source=headgate.Delta(path=str(folder / "inbox")),
                registry=str(folder / "schemas"),
                envelope=headgate.Confluent(),
                lake=str(folder / "lake"),
                silver="{route}_landed",
                predict={"waits": headgate.Predict(**{**declared, **predict})},
                train={"waits": train} if train else {},
            ),
            folder,
        )
        self.ids = {"orders": self.register("orders-value", ORDERS)}
        self.prediction: Prediction | None = None

    def order(self, store: int, minute: float, pizzas: int = 1, **more: Any) -> Record:
        return self.event("orders", {"store_id": store, "pizzas": pizzas, **more}, minute)

    def event(self, topic: str, fields: dict[str, Any], minute: float) -> Record:
        record = self.record(topic, self.ids[topic], fields)
        return replace(record, timestamp=START + timedelta(minutes=minute))

    def start(self) -> BatchLander:
        """Start a run, with state that is read from the lake."""
        return self.lander()

    def land_in(self, lander: BatchLander, *records: Record) -> None:
        """Land a batch in a run that goes on."""
        batch, start = self._next()
        numbered, end = number_records(records, "orders", start or {})
        stage = stage_in_process(*by_partition(numbered))
        lander.land(Extent(batch, start, end), stage)
        lander.record(lander.follower.wait())

    def follow_ups(self, plan: BatchPlan, listener: Listener) -> Sequence[FollowUp]:
        self.prediction = self.new_prediction(listener)
        return [PredictFollowUp([self.prediction])]

    def new_prediction(self, listener: Listener) -> Prediction:
        return Prediction(
            self.pipeline,
            "waits",
            self.committer,
            listener,
            self.models,
            check_seconds=0,
            judge_seconds=0,
        )

    def waits(self) -> list[tuple[Any, ...]]:
        """Store, prediction and model of all predictions, in the order in which they were made."""
        found = self.rows("waits", "predicted_at", *COLUMNS) if self.has_table("waits") else []
        found = sorted(found, key=lambda row: (row["predicted_at"], row["store_id"]))
        return [tuple(row[name] for name in COLUMNS) for row in found]

    def has_table(self, name: str) -> bool:
        return (self.path / name / "_delta_log").is_dir()

    def entries(self) -> list[PredictionEntry]:
        ledger = LedgerSnapshot.open(self.pipeline.lake, self.pipeline.ledger, "shop")
        return [row.entry for row in ledger.entries(PredictionEntry)]

    def of(self, kind: type[Event]) -> list[Event]:
        return [one for one in self.events if isinstance(one, kind)]


def wait_for(is_true: Callable[[], bool]) -> None:
    """Wait for a thread in the background."""
    from time import monotonic, sleep

    deadline = monotonic() + 20
    while not is_true():
        assert monotonic() < deadline, "it does not happen"
        sleep(0.01)
