from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.lake.names import TableNames

OWN = ["silver_bronze", "quarantine", "ledger"]


def test_route_replaces_its_placeholder() -> None:
    names = TableNames("raw_{route}_v1", "quarantine", "ledger")
    assert names.silver_for("chess") == "raw_chess_v1"
    assert names.silver_for("Chess").startswith("raw_chess__")


@pytest.mark.parametrize("route", ["bronze", "quarantine", "ledger"])
@pytest.mark.parametrize(
    "template", ["{route}", "silver_{route}", "{route}_rows", "silver_{route}_rows"]
)
def test_no_route_gets_one_of_the_pipelines_own_tables(template: str, route: str) -> None:
    own = {one: template.replace("{route}", one) for one in ("bronze", "quarantine", "ledger")}
    names = TableNames(template, own["quarantine"], own["ledger"], own["bronze"])
    assert names.silver_for(route) not in own.values()


def test_own_names_that_do_not_fit_the_template_reserve_nothing() -> None:
    names = TableNames("silver_{route}", "quarantine", "ledger", "bronze")
    assert names.silver_for("ledger") == "silver_ledger"


@given(st.lists(st.text(max_size=20) | st.sampled_from(OWN), unique=True, max_size=20))
@settings(deadline=None)
def test_every_route_has_a_table_of_its_own(routes: list[str]) -> None:
    names = TableNames("{route}", "quarantine", "ledger", "silver_bronze")
    tables = {names.silver_for(route) for route in routes}
    assert len(tables) == len(routes)
    assert not tables & set(OWN)
