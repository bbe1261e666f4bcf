from __future__ import annotations

from pathlib import Path

import pytest

from headgate.engine.events import ModelServes, PredictionFailed
from headgate.testing import FailingCommitter
from tests.models.orders import START, WIDER, OrdersLake, wait_for

FIRST, SECOND = "models:/shop-waits/1", "models:/shop-waits/2"


@pytest.fixture
def lake(tmp_path: Path) -> OrdersLake:
    found = OrdersLake(tmp_path)
    found.models.promote(5)
    return found


def test_changed_key_is_scored_once_and_others_are_not(lake: OrdersLake) -> None:
    run = lake.start()
    lake.land_in(run, lake.order(1, 0), lake.order(2, 0))
    lake.land_in(run, lake.order(1, 1), lake.order(1, 2))
    assert lake.waits() == [(1, 5.0, FIRST), (2, 5.0, FIRST), (1, 15.0, FIRST)]


def test_row_has_what_the_prediction_is_based_on(lake: OrdersLake) -> None:
    lake.land([lake.order(7, 3)])
    (row,) = lake.rows("waits")
    assert (row["prediction"], row["low"], row["high"]) == (5.0, 4.0, 6.0)
    assert row["at"] == START.replace(minute=3)
    assert len(row["prediction_id"]) == 32
    (entry,) = lake.entries()
    assert (entry.rows, entry.model, entry.fallback, entry.error) == (1, FIRST, 0, None)


def test_rows_before_the_window_do_not_count(lake: OrdersLake) -> None:
    run = lake.start()
    lake.land_in(run, lake.order(1, 0), lake.order(1, 1), lake.order(2, 50))
    lake.land_in(run, lake.order(1, 70))
    assert lake.waits() == [(1, 10.0, FIRST), (2, 5.0, FIRST), (1, 5.0, FIRST)]


def test_restart_goes_on_where_the_last_run_ended(lake: OrdersLake) -> None:
    lake.land([lake.order(1, 0), lake.order(2, 0)])
    lake.land([lake.order(1, 1)])
    assert lake.waits() == [(1, 5.0, FIRST), (2, 5.0, FIRST), (1, 10.0, FIRST)]
    lake.run()
    assert len(lake.waits()) == 3


def test_crash_before_the_ledger_repeats_no_prediction(
    lake: OrdersLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.land([lake.order(1, 0)])
    with monkeypatch.context() as broken:
        broken.setattr(lake.ledger, "add", _fail)
        with pytest.raises(OSError, match="killed"):
            lake.land([lake.order(1, 1), lake.order(2, 1)])
    written = lake.rows("waits", "prediction_id")
    assert len(written) == 3
    lake.run()
    assert lake.rows("waits", "prediction_id") == written


def _fail(*_: object) -> None:
    raise OSError("killed")


def test_promoted_model_is_taken_up_in_the_same_run(lake: OrdersLake) -> None:
    run = lake.start()
    lake.land_in(run, lake.order(1, 0), lake.order(2, 0))
    lake.models.promote(7)
    assert lake.prediction is not None
    model = lake.prediction.model
    wait_for(lambda: model.waiting == SECOND)
    lake.land_in(run, lake.order(1, 1))
    assert lake.waits()[2:] == [(1, 14.0, SECOND), (2, 7.0, SECOND)]
    assert [one.model for one in lake.events if isinstance(one, ModelServes)] == [FIRST, SECOND]


def test_promoted_model_is_taken_up_while_the_source_is_idle(lake: OrdersLake) -> None:
    run = lake.start()
    lake.land_in(run, lake.order(1, 0))
    lake.models.promote(7)
    (follow_up,) = run.follower.follow_ups
    assert follow_up.while_idle
    wait_for(lambda: bool(follow_up.follow((), None).entries))
    assert lake.waits()[1:] == [(1, 7.0, SECOND)]


@pytest.mark.parametrize("how", ["it does not fit the features", "it cannot be loaded"])
def test_last_good_model_goes_on_if_a_new_one_is_broken(lake: OrdersLake, how: str) -> None:
    run = lake.start()
    lake.land_in(run, lake.order(1, 0))
    if how == "it cannot be loaded":
        lake.models.promote_broken()
    else:
        lake.models.promote(None)
    assert lake.prediction is not None
    model = lake.prediction.model
    wait_for(lambda: model.waiting is not None or model.error is not None)
    for minute in (1, 2):
        lake.land_in(run, lake.order(1, minute))
    assert lake.waits()[1:] == [(1, 10.0, FIRST), (1, 15.0, FIRST)]
    (failed,) = lake.of(PredictionFailed)
    assert "goes on predicting" in failed.text
    assert [entry.error is None for entry in lake.entries()] == [True, False, False, False]


def test_last_good_model_goes_on_after_a_restart(lake: OrdersLake) -> None:
    lake.land([lake.order(1, 0)])
    lake.models.promote_broken()
    lake.land([lake.order(1, 1)])
    assert lake.waits()[1:] == [(1, 10.0, FIRST)]
    assert FIRST in lake.models.loaded


def test_version_that_cannot_be_loaded_is_not_loaded_all_the_time(lake: OrdersLake) -> None:
    run = lake.start()
    lake.models.promote_broken()
    for minute in range(5):
        lake.land_in(run, lake.order(1, minute))
    assert lake.prediction is not None
    model = lake.prediction.model
    wait_for(lambda: model.error is not None)
    assert lake.models.loaded.count("models:/shop-waits@serving") <= 2
    lake.models.promote(7)
    wait_for(lambda: model.waiting is not None)


def test_fallback_is_used_without_a_model(tmp_path: Path) -> None:
    lake = OrdersLake(tmp_path, fallback="SELECT store_id, pizzas FROM orders")
    run = lake.start()
    lake.land_in(run, lake.order(1, 0, pizzas=3), lake.order(2, 0, pizzas=4))
    lake.land_in(run, lake.order(1, 1, pizzas=9))
    assert lake.waits() == [(1, 3.0, "fallback"), (2, 4.0, "fallback"), (1, 9.0, "fallback")]
    assert [entry.fallback for entry in lake.entries()] == [0, 2, 1]
    (failed,) = lake.of(PredictionFailed)
    assert "not registered yet; the fallback is used" in failed.text


def test_nothing_is_predicted_without_a_model_and_a_fallback(tmp_path: Path) -> None:
    lake = OrdersLake(tmp_path)
    lake.land([lake.order(1, 0)])
    assert lake.waits() == []
    lake.models.promote(5)
    lake.land([lake.order(2, 0)])
    assert lake.waits() == [(1, 5.0, FIRST), (2, 5.0, FIRST)]


def test_new_field_changes_nothing(lake: OrdersLake) -> None:
    run = lake.start()
    lake.land_in(run, lake.order(1, 0))
    lake.ids["orders"] = lake.register("orders-value", WIDER)
    lake.land_in(run, lake.order(1, 1, channel="phone"))
    assert lake.waits()[1:] == [(1, 10.0, FIRST)]


def test_table_that_does_not_exist_yet_is_waited_for(tmp_path: Path) -> None:
    features = "SELECT (SELECT count(*) FROM orders) - (SELECT count(*) FROM done) AS orders"
    lake = OrdersLake(tmp_path, features=features)
    lake.models.promote(5)
    run = lake.start()
    lake.land_in(run, lake.order(1, 0), lake.order(1, 1))
    assert lake.waits() == []
    lake.ids["done"] = lake.ids["orders"]
    lake.land_in(run, lake.event("done", {"store_id": 1}, 2))
    assert lake.waits() == [(1, 5.0, FIRST)]
    assert not lake.of(PredictionFailed)


def test_landing_goes_on_if_predictions_cannot_be_computed(tmp_path: Path) -> None:
    lake = OrdersLake(tmp_path, features="SELECT count(nothing) AS orders FROM orders")
    lake.models.promote(5)
    run = lake.start()
    for minute in (1, 2):
        lake.land_in(run, lake.order(1, minute))
    assert len(lake.rows("orders_landed")) == 2
    (failed,) = lake.of(PredictionFailed)
    assert "nothing" in failed.text


def test_landing_goes_on_if_predictions_cannot_be_committed(lake: OrdersLake) -> None:
    lake.committer = committer = FailingCommitter(lake.committer, refusing={"waits"})
    run = lake.start()
    lake.land_in(run, lake.order(1, 0))
    assert lake.waits() == []
    assert len(lake.of(PredictionFailed)) == 1
    committer.heal()
    lake.land_in(run, lake.order(2, 1))
    assert lake.waits() == [(1, 5.0, FIRST), (2, 5.0, FIRST)]


def test_lost_answer_of_a_commit_repeats_no_prediction(lake: OrdersLake) -> None:
    lake.committer = committer = FailingCommitter(lake.committer, losing_response={"waits"})
    run = lake.start()
    lake.land_in(run, lake.order(1, 0))
    committer.heal()
    lake.land_in(run, lake.order(2, 1))
    assert lake.waits() == [(1, 5.0, FIRST), (2, 5.0, FIRST)]
