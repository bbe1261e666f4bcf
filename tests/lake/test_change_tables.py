from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.config import Datastream, Files, PipelineConfig
from headgate.lake.names import ChangeTableKind, ChangeTables, pattern_name


@dataclass(frozen=True)
class Source:
    database: str | None
    schema: str | None
    table: str


NAMES = ChangeTables(
    "log_{database}_{table}",
    "quarantine",
    "ledger",
    "{database}_{table}",
    "history_{database}_{table}",
)
ORDERS = Source("shop", None, "orders")


def shop(database: str, table: str) -> Source:
    return Source(database, None, table)


def all_names(names: ChangeTables, source: Source) -> list[str]:
    made = (names.log_for(source), names.merged_for(source), names.history_for(source))
    return [*filter(None, made), names.tombstones_for(source)]


def test_tables_of_a_plain_source_are_what_the_templates_say() -> None:
    assert all_names(NAMES, ORDERS) == [
        "log_shop_orders",
        "shop_orders",
        "history_shop_orders",
        "_tombstones_shop_orders",
    ]
    assert NAMES.merged_for(shop("shop", "order_lines")) == "shop_order_lines"


def test_tables_that_are_not_declared_have_no_name() -> None:
    names = ChangeTables("log_{table}", "quarantine", "ledger")
    assert names.merged_for(ORDERS) is None
    assert names.history_for(ORDERS) is None
    assert names.tombstones_for(ORDERS) == "_tombstones_log_orders"


def test_tables_are_those_of_the_pipeline() -> None:
    pipeline = PipelineConfig(
        name="shop",
        source=Files(path="./landing"),
        envelope=Datastream(),
        lake="./lake",
        merged="now_{table}",
        ledger="journal",
    )
    names = ChangeTables.of(pipeline)
    assert names == ChangeTables("log_{database}_{table}", "quarantine", "journal", "now_{table}")


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (Source("shop", None, "orders"), "shop_shop_orders"),
        (Source(None, "public", "orders"), "public_public_orders"),
        (Source("orcl", "hr", "orders"), "orcl_hr_orders"),
    ],
)
def test_database_and_schema_stand_in_for_each_other(source: Source, name: str) -> None:
    names = ChangeTables("{database}_{schema}_{table}", "quarantine", "ledger")
    assert names.log_for(source) == name


def test_patterns_match_database_and_table() -> None:
    assert pattern_name(ORDERS) == "shop.orders"
    assert pattern_name(Source(None, "public", "orders")) == "public.orders"
    assert pattern_name(Source("orcl", "hr", "orders")) == "orcl.orders"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (shop("my_shop", "orders"), "my_shop_orders"),
        (shop("Shop", "OrderLines"), "shop_orderlines"),
        (shop("my-shop", "x$y"), "my_shop_x_y"),
        (Source("XE", "HR", "EMPLOYEES"), "xe_employees"),
    ],
)
def test_names_are_readable(source: Source, name: str) -> None:
    assert NAMES.merged_for(source) == name


@pytest.mark.parametrize("source", [shop("", "orders"), shop("--", "x"), shop("a", "b" * 300)])
def test_invalid_name_becomes_readable_with_a_digest(source: Source) -> None:
    assert re.fullmatch("[a-z_]*___m[a-z2-7]{10}", NAMES.merged_for(source) or "")


def test_name_that_could_be_a_log_is_reserved_for_logs() -> None:
    assert NAMES.log_for(ORDERS) == "log_shop_orders"
    merged = NAMES.merged_for(shop("log", "shop_orders"))
    assert merged is not None
    assert merged.startswith("log_shop_orders___m")
    assert NAMES.kind_of(merged) == ChangeTableKind.MERGED


@pytest.mark.parametrize("own", ["quarantine", "ledger"])
def test_no_source_gets_one_of_the_pipelines_own_tables(own: str) -> None:
    names = ChangeTables("{table}", "quarantine", "ledger")
    assert names.log_for(shop("shop", own)).startswith(f"{own}___l")
    assert NAMES.log_for(shop("shop", own)) == f"log_shop_{own}"


@pytest.mark.parametrize("table", ["Gold_rows", "gold_by_day_of_a"])
def test_no_source_gets_a_table_that_is_derived(table: str) -> None:
    names = ChangeTables(
        "log_{table}", "quarantine", "ledger", "{table}", gold=("gold_rows", "gold_by_day_{route}")
    )
    source = shop("shop", table)
    merged = names.merged_for(source)
    assert merged is not None
    assert merged.startswith(f"{table.lower()}___m")
    assert names.kind_of(merged) == ChangeTableKind.MERGED
    assert names.kind_of(table.lower()) is None
    assert names.log_for(source) == f"log_{table.lower()}"


def test_logs_in_the_lake_are_distinguished_from_all_other_tables(tmp_path: Path) -> None:
    sources = [ORDERS, shop("Shop", "lines"), shop("log", "shop_orders"), shop("my_shop", "a")]
    tables = [name for source in sources for name in all_names(NAMES, source)]
    for table in [*tables, "quarantine", "ledger", NAMES.files]:
        (tmp_path / table / "_delta_log").mkdir(parents=True)
    (tmp_path / "log_shop_no_table").mkdir()
    assert NAMES.logs_in(str(tmp_path)) == sorted(NAMES.log_for(source) for source in sources)
    assert ChangeTables("{table}", "quarantine", "ledger").logs_in(str(tmp_path / "none")) == []


# Few letters, so that values collide wherever they can.
WORDS = st.text("ab_", min_size=1, max_size=4) | st.sampled_from(
    ["log", "history", "log_a", "a_log", "A", "a-b", "quarantine", "ledger", "ä", "a__mabcdefghij"]
)
SOURCES = st.builds(Source, st.none() | WORDS, st.none() | WORDS, WORDS | st.text(max_size=90))
TEMPLATES = [
    ("log_{database}_{table}", "{database}_{table}", "history_{database}_{table}"),
    ("{table}", "log_{table}", "{table}_log"),
    ("{database}__{table}", "a_{table}", "{database}_{schema}_{table}_b"),
    ("{table}_a_{database}", "a_{table}_{schema}", "a_{table}_b"),
    ("{schema}a{table}", "b{table}", "{table}b"),
]


@pytest.mark.parametrize("templates", TEMPLATES, ids=" ".join)
@given(source=SOURCES)
@settings(deadline=None)
def test_names_are_safe_and_those_of_one_source_differ(
    templates: tuple[str, str, str], source: Source
) -> None:
    log, merged, history = templates
    tables = all_names(ChangeTables(log, "quarantine", "ledger", merged, history), source)
    assert len(set(tables)) == 4
    assert not set(tables) & {"quarantine", "ledger"}
    for table in tables[:3]:
        assert re.fullmatch(r"[a-z0-9][a-z0-9_]{0,250}", table)


@pytest.mark.parametrize("templates", TEMPLATES, ids=" ".join)
@given(one=SOURCES, other=SOURCES)
@settings(deadline=None)
def test_tables_of_different_kinds_never_share_a_name(
    templates: tuple[str, str, str], one: Source, other: Source
) -> None:
    log, merged, history = templates
    names = ChangeTables(log, "quarantine", "ledger", merged, history)
    for kind, table in enumerate(all_names(names, one)):
        assert table not in [each for at, each in enumerate(all_names(names, other)) if at != kind]


@given(st.lists(SOURCES, min_size=2, max_size=12, unique=True))
@settings(deadline=None)
def test_names_with_a_digest_are_never_shared(sources: list[Source]) -> None:
    for log, merged, history in TEMPLATES:
        names = ChangeTables(log, "quarantine", "ledger", merged, history)
        made = [name for source in sources for name in all_names(names.apart, source)]
        assert len(set(made)) == 4 * len(sources)
        assert {names.kind_of(names.apart.log_for(source)) for source in sources} == {"log"}


@given(SOURCES)
@settings(deadline=None)
def test_kind_of_a_table_is_known_by_its_name(source: Source) -> None:
    for log, merged, history in TEMPLATES:
        names = replace(NAMES, change_log=log, merged=merged, history=history)
        assert names.kind_of(names.log_for(source)) == "log"
        assert names.kind_of(names.merged_for(source) or "") == "merged"
        assert names.kind_of(names.history_for(source) or "") == "history"
        assert names.kind_of(names.tombstones_for(source)) is None
