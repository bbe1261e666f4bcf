from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from headgate.config import PipelineConfig, load_pipeline
from headgate.errors import LandingError, UsageError
from headgate.lab.pizza.world import PizzaPlan
from headgate.models import estimator
from headgate.models.estimator import Encoding, Estimator
from headgate.models.examples import Examples, Split, read_examples, split_by_days
from headgate.models.registry import ModelRegistry
from headgate.models.train import (
    FALLBACK,
    NEW,
    RECENT,
    declared_prediction,
    evaluate,
    explain,
    promote_version,
    recent_means,
    train,
)
from tests.cli.conftest import Headgate
from tests.cli.conftest import headgate as headgate_fixture
from tests.models.pizza_lake import FEATURES, write_pizza

headgate = headgate_fixture

PLAN = PizzaPlan(stores=2, seed=4, days=3, start=datetime(2026, 1, 9, tzinfo=UTC))
HOUR = 3_600_000_000
DAY = 24 * HOUR


@pytest.fixture(autouse=True)
def few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough to be better than the fallback."""
    monkeypatch.setattr(estimator, "_TREES", 40)


@pytest.fixture(scope="module")
def pizza(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Landed once; models are beside it."""
    return write_pizza(tmp_path_factory.mktemp("pizza"), PLAN)


@pytest.fixture
def own_models(pizza: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PipelineConfig:
    """The same lake, with a registry for this test alone."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    monkeypatch.setenv("MLFLOW_ARTIFACTS_DESTINATION", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return load_pipeline(pizza)


def _examples(at: list[int], known_at: list[int], labels: list[float], key: int = 1) -> Examples:
    frame = pd.DataFrame({"store_id": [key] * len(at)})
    return Examples(frame, np.array(at), np.array(known_at), np.array(labels))


def test_last_fifth_of_the_days_is_for_evaluation() -> None:
    examples = _examples([d * DAY for d in range(10)], [d * DAY + 1 for d in range(10)], [1.0] * 10)
    split = split_by_days(examples)
    assert (len(split.earlier), len(split.later)) == (8, 2)
    assert split.begin == datetime(1970, 1, 9, tzinfo=UTC)
    assert len(split_by_days(examples, days=5).later) == 5


def test_nothing_is_learned_from_labels_that_became_known_later() -> None:
    examples = _examples([0, HOUR, DAY], [2 * HOUR, DAY + HOUR, DAY + HOUR], [1.0, 2.0, 3.0])
    split = split_by_days(examples)
    assert split.earlier.labels.tolist() == [1.0]
    assert split.later.labels.tolist() == [3.0]


def test_labels_of_one_day_are_too_few() -> None:
    with pytest.raises(LandingError, match="labels of 1 days"):
        split_by_days(_examples([0, HOUR], [1, HOUR + 1], [1.0, 2.0]))


def test_mean_of_recent_labels_has_only_those_known_by_the_moment() -> None:
    earlier = _examples([0, 1], [10, 20], [4.0, 8.0])
    later = _examples([5, 15, 30, 30], [40, 25, 50, 60], [100.0, 6.0, 7.0, 7.0])
    found = recent_means(Split(earlier, later, datetime(1970, 1, 1, tzinfo=UTC)))
    assert np.isnan(found[0])
    assert found[1:].tolist() == [4.0, 6.0, 6.0]


def test_model_learns_and_its_range_holds_most_labels() -> None:
    random = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "store_id": random.integers(1, 4, 3000),
            "queue": random.integers(0, 30, 3000).astype(float),
            "channel": random.choice(["app", "phone"], 3000),
        }
    )
    labels = frame["queue"] * 2 + frame["store_id"] * 5 + random.normal(0, 2, 3000)
    labels += np.where(frame["channel"] == "app", 0, 10)
    model = Estimator.train(frame[:2500], "store_id", labels[:2500].to_numpy())
    predicted = model.predict(frame[2500:])
    truth = labels[2500:].to_numpy()
    assert np.abs(predicted["prediction"] - truth).mean() < 3
    inside = (predicted["low"] <= truth) & (truth <= predicted["high"])
    assert 0.6 < inside.mean() < 0.95
    assert (predicted["low"] <= predicted["prediction"]).all()
    assert (predicted["prediction"] <= predicted["high"]).all()


def test_unknown_keys_and_nulls_are_missing_values() -> None:
    frame = pd.DataFrame({"k": [1, 2], "x": [None, True], "t": ["a", None]})
    matrix = Encoding.of(frame, "k").encode(pd.DataFrame({"t": ["b"], "x": [2], "k": [3]}))
    assert np.isnan(matrix[0, [0, 2]]).all()
    assert matrix[0, 1] == 2
    assert np.isnan(Encoding.of(frame, "k").encode(frame)[0, 1])


def test_features_that_do_not_fit_the_model_are_named() -> None:
    encoding = Encoding.of(pd.DataFrame({"k": [1], "x": [1.0]}), "k")
    with pytest.raises(LandingError, match="do not have `x`"):
        encoding.encode(pd.DataFrame({"k": [1]}))
    times = pd.DataFrame({"k": [1], "x": [pd.Timestamp(2026, 1, 1, tz="UTC")]})
    with pytest.raises(LandingError, match="`x` is neither a number nor a text"):
        encoding.encode(times)


def test_examples_have_features_of_the_moment_before_the_order(pizza: Path) -> None:
    examples = read_examples(load_pipeline(pizza), "wait_times")
    assert list(examples.frame.columns) == ["store_id", "hour", "orders", "recent"]
    assert examples.frame["orders"].iloc[0] == 0
    assert (examples.known_at > examples.at).all()
    assert (examples.labels > 0).all()
    assert examples.days == 3


def test_first_model_is_promoted_if_it_beats_the_fallback(own_models: PipelineConfig) -> None:
    trained = train(own_models, "wait_times")
    names = [score.name for score in trained.evaluation.scores]
    assert names == [NEW, FALLBACK, RECENT]
    mine, stale = trained.evaluation.scores[:2]
    assert mine.mae < stale.mae
    assert trained.promoted
    (version,) = ModelRegistry.of(own_models).versions("pizza-wait_times")
    assert (version.version, version.serving) == (1, True)
    assert version.metrics["mae"] == pytest.approx(mine.mae)
    assert version.params["features"] == "hour,orders,recent"
    assert version.params["trained_until"] == "2026-01-11"
    model = ModelRegistry.of(own_models).load_model(own_models.model_uri("wait_times"))
    assert model.uri_with_version == "models:/pizza-wait_times/1"

    again = train(own_models, "wait_times")
    assert not again.promoted
    assert "not better than the serving model" in again.reason
    assert evaluate(own_models, "wait_times").scores[0].mae == pytest.approx(mine.mae)

    assert promote_version(own_models, "wait_times", None).version == 2
    assert {each.feature for each in explain(own_models, "wait_times")} == {
        "store_id",
        "hour",
        "orders",
        "recent",
    }


def test_model_that_does_not_fit_the_features_is_replaced(
    own_models: PipelineConfig, pizza: Path
) -> None:
    train(own_models, "wait_times")
    declared = own_models.predict["wait_times"]
    other = FEATURES.replace("AS orders", "AS seen").replace("AS recent", "AS last_30")
    changed = own_models.model_copy(
        update={"predict": {"wait_times": declared.model_copy(update={"features": other})}}
    )
    with pytest.raises(LandingError, match="do not have `orders`, `recent`"):
        evaluate(changed, "wait_times")
    trained = train(changed, "wait_times")
    assert trained.promoted
    assert "do not have" in (trained.evaluation.serving_error or "")


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("SELECT store_id, event_time AS at FROM pizza_orders_avro", "no column `known_at`"),
        (
            "SELECT store_id, 1 AS at, event_time AS known_at, 1 AS label FROM pizza_orders_avro",
            "returns `at`, not a timestamp",
        ),
        (
            "SELECT store_id, event_time AS at, event_time AS known_at, 'x' AS label "
            "FROM pizza_orders_avro",
            "not a number",
        ),
        (
            "SELECT store_id, event_time AS at, event_time AS known_at, 1 AS label "
            "FROM pizza_orders_avro WHERE store_id = 99",
            "no rows",
        ),
    ],
)
def test_labels_that_are_not_labels_are_refused(pizza: Path, label: str, message: str) -> None:
    pipeline = load_pipeline(pizza)
    declared = pipeline.train["wait_times"].model_copy(update={"label": label})
    with pytest.raises(LandingError, match=message):
        read_examples(pipeline.model_copy(update={"train": {"wait_times": declared}}), "wait_times")


def test_prediction_is_found_by_name(pizza: Path) -> None:
    pipeline = load_pipeline(pizza)
    assert declared_prediction(pipeline, None) == "wait_times"
    with pytest.raises(UsageError, match="no prediction `wait_time`") as raised:
        declared_prediction(pipeline, "wait_time")
    assert raised.value.hint == "did you mean `wait_times`?"


def test_model_commands_train_list_promote_and_explain(
    headgate: Headgate, own_models: PipelineConfig, pizza: Path
) -> None:
    listed = headgate("model", "list", pizza)
    assert "No model has been trained yet" in listed.out
    trained = headgate("model", "train", pizza, "--no-promote")
    assert (trained.code, trained.err) == (0, "")
    assert "new model" in trained.out
    assert "models:/pizza-wait_times/1 is not promoted: not promoted, as asked" in trained.out
    assert headgate("model", "promote", pizza).out == "models:/pizza-wait_times/1 serves\n"
    assert "serving" in headgate("model", "list", pizza).out
    found = json.loads(headgate("model", "evaluate", pizza, "--json").out)["data"]
    assert [score["name"] for score in found["scores"]] == ["serving", FALLBACK, RECENT]
    explained = headgate("model", "explain", pizza).out
    assert explained.startswith("FEATURE")
    assert headgate("model", "promote", pizza, "--version", "9").code == 1


def test_commands_say_what_they_need(headgate: Headgate, tmp_path: Path) -> None:
    file = write_pizza(tmp_path / "few", PizzaPlan(stores=1, days=0.5, start=PLAN.start))
    failed = headgate("model", "train", file)
    assert failed.code == 1
    assert "training needs more than 1" in failed.err
    assert not (tmp_path / "few" / "models").exists()
    assert PLAN.end == PLAN.start + timedelta(days=3)
