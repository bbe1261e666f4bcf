from __future__ import annotations

from dataclasses import replace

import pytest

from tests.cdc.changes import case
from tests.cdc.order.peers import badal, google_bigquery, ours
from tests.rounds import rounds


@rounds(300, 5_000)
@pytest.mark.parametrize("fail_over", [False, True], ids=["one server", "fail-over"])
def test_only_complete_orders_give_the_rows_of_the_database(cases: int, fail_over: bool) -> None:
    wrong = dict.fromkeys((ours, badal, google_bigquery), 0)
    for seed in range(cases):
        made = case(seed, fail_over)
        for rule in wrong:
            wrong[rule] += rule(made) != made.rows

    print(f"\n{'rule':<16} {'cases':>6} {'wrong':>6}")
    for rule, count in wrong.items():
        print(f"{rule.__name__:<16} {cases:>6} {count:>6}")
    assert wrong[ours] == 0
    assert wrong[badal] > 0
    assert wrong[google_bigquery] > 0


def test_other_rules_are_right_while_changes_come_one_by_one_and_apart_in_time() -> None:
    for seed in range(200):
        made = case(seed)
        apart = [
            [replace(change, micros=second * 1_000_000)]
            for second, change in enumerate(made.changes)
        ]
        calm = replace(made, batches=apart)
        assert ours(calm) == badal(calm) == google_bigquery(calm) == made.rows
