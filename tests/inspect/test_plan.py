from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from headgate.config import Kafka
from headgate.errors import RegistryUnavailable
from headgate.inspect.plan import PipelinePlan, TablePlan, read_plan
from headgate.registry.registry import SubjectVersion
from tests.inspect.framed_lake import FramedLake, proto
from tests.registry.fake_registry import Response, fake_registry, folder_responses

FIRST = b"\0"
"""The first message of a schema, with nothing in it."""
SECOND = b"\x02\x02"


def planned(plan: PipelinePlan) -> dict[str, list[tuple[str, str]]]:
    """What would change: text and outcome by table."""
    return {
        table.table: [(str(one.change), one.change.outcome.value) for one in table.changes]
        for table in plan.tables
        if table.changes
    }


def one_table(plan: PipelinePlan, table: str) -> TablePlan:
    (found,) = [one for one in plan.tables if one.table == table]
    return found


def orders(folder: Path, *bodies: str, **declared: Any) -> FramedLake:
    """A table of orders that has met the first schema, and the registry all of them."""
    lake = FramedLake(folder, declared=declared)
    first = lake.register("orders-value", proto(f"Order {{ {bodies[0]} }}"))
    lake.land([("orders", first, FIRST)])
    for body in bodies[1:]:
        lake.register("orders-value", proto(f"Order {{ {body} }}"))
    return lake


def test_nothing_new_asks_nothing(tmp_path: Path) -> None:
    plan = read_plan(orders(tmp_path, "int32 n = 1;").pipeline)
    assert planned(plan) == {}
    assert plan.summary.tables == 1
    assert plan.all_lands_as_it_is
    assert one_table(plan, "silver_orders").schemas == (SubjectVersion("orders-value", 1, 1),)


def test_only_the_newest_schema_of_a_subject_counts(tmp_path: Path) -> None:
    lake = orders(tmp_path, "int32 n = 1;", "string n = 1;", "int32 n = 1; string name = 2;")
    plan = read_plan(lake.pipeline)
    assert planned(plan) == {"silver_orders": [("+ name string", "applied")]}
    table = one_table(plan, "silver_orders")
    assert table.schemas == (SubjectVersion("orders-value", 3, 3),)
    assert table.changes[0].schema_ids == (3,)
    assert (table.route, table.exists) == ("orders", True)


def test_each_kind_of_change_is_told_as_the_ledger_will_tell_it(tmp_path: Path) -> None:
    lake = orders(
        tmp_path, "int32 n = 1; string a = 2; string b = 3;", "string n = 1; string c = 2;"
    )
    plan = read_plan(lake.pipeline)
    assert planned(plan)["silver_orders"] == [
        ("n is int; string values go to n__string", "kept apart"),
        ("a is renamed to c", "kept apart"),
        ("b is no longer sent; the column stays", "applied"),
    ]
    assert plan.summary.kept_apart == 2
    assert not plan.all_lands_as_it_is


def test_a_column_that_was_dropped_before_is_not_dropped_again(tmp_path: Path) -> None:
    lake = orders(tmp_path, "int32 n = 1; int32 m = 2;", "int32 n = 1;")
    dropped = [("m is no longer sent; the column stays", "applied")]
    assert planned(read_plan(lake.pipeline)) == {"silver_orders": dropped}
    lake.land([("orders", 2, FIRST)])
    lake.register("orders-value", proto("Order { int32 n = 1; int32 o = 3; }"))
    assert planned(read_plan(lake.pipeline)) == {"silver_orders": [("+ o int", "applied")]}


@pytest.mark.parametrize(
    ("mode", "outcome", "count"),
    [
        ("evolve", "applied", "changed"),
        ("freeze", "refused", "refused"),
        ("discard_row", "quarantined", "quarantined"),
        ("discard_value", "discarded", "discarded"),
    ],
)
def test_the_contract_decides(tmp_path: Path, mode: str, outcome: str, count: str) -> None:
    lake = orders(
        tmp_path, "int32 n = 1;", "int32 n = 1; string name = 2;", contract={"columns": mode}
    )
    plan = read_plan(lake.pipeline)
    assert planned(plan) == {"silver_orders": [("+ name string", outcome)]}
    assert getattr(plan.summary, count) == 1
    assert plan.all_lands_as_it_is == (mode == "evolve")


def test_a_refused_schema_changes_nothing_else(tmp_path: Path) -> None:
    bodies = "int32 n = 1;", "string n = 1; string name = 2;"
    lake = orders(tmp_path, *bodies, contract={"types": "freeze"})
    assert planned(read_plan(lake.pipeline)) == {
        "silver_orders": [("n is int, not string", "refused")]
    }


def test_rules_of_one_table_are_its_own(tmp_path: Path) -> None:
    contract = {"columns": "freeze", "per_table": {"silver_ord*": "evolve"}}
    lake = orders(tmp_path, "int32 n = 1;", "int32 n = 1; string name = 2;", contract=contract)
    assert planned(read_plan(lake.pipeline)) == {"silver_orders": [("+ name string", "applied")]}


def test_widening_says_how_much_is_rewritten(tmp_path: Path) -> None:
    lake = orders(tmp_path, "int32 n = 1;", "int64 n = 1;")
    table = one_table(read_plan(lake.pipeline), "silver_orders")
    assert str(table.changes[0].change) == "n widens from int to long"
    files = pa.table(DeltaTable(tmp_path / "lake" / "silver_orders").get_add_actions())
    assert table.rewritten_bytes == sum(files["size_bytes"].to_pylist()) > 0


def test_a_table_too_large_to_rewrite_keeps_the_larger_type_apart(tmp_path: Path) -> None:
    contract = {"rewrite_up_to": "1 B"}
    lake = orders(tmp_path, "int32 n = 1;", "int64 n = 1;", contract=contract)
    plan = read_plan(lake.pipeline)
    assert planned(plan) == {
        "silver_orders": [("n is int; long values go to n__long", "kept apart")]
    }
    assert one_table(plan, "silver_orders").rewritten_bytes == 0


def test_a_schema_that_cannot_be_compiled_is_told_with_the_reason(tmp_path: Path) -> None:
    lake = orders(tmp_path, "int32 n = 1;", "nonsense")
    lake.register("other", proto("A { nonsense }"))
    plan = read_plan(lake.pipeline)
    mine, other = plan.unusable
    assert (str(mine.schema), mine.tables) == ("orders-value@2", ("silver_orders",))
    assert (str(other.schema), other.tables) == ("other@1", ())
    assert mine.reason == "schema_refused"
    assert "Expected" in mine.detail
    assert (plan.summary.refused, plan.all_lands_as_it_is) == (2, False)
    assert plan.without_table == ()


def test_what_was_refused_and_still_is_is_nothing_new(tmp_path: Path) -> None:
    lake = _refused(tmp_path)
    plan = read_plan(lake.pipeline)
    assert planned(plan) == {}
    assert (plan.summary.as_before, plan.all_lands_as_it_is) == (1, True)


@pytest.mark.parametrize(
    ("mode", "outcome"), [("evolve", "applied"), ("discard_row", "quarantined")]
)
def test_what_was_refused_is_new_under_another_contract(
    tmp_path: Path, mode: str, outcome: str
) -> None:
    lake = _refused(tmp_path)
    lake.declared = {"contract": {"columns": mode}}
    plan = read_plan(lake.pipeline)
    assert planned(plan) == {"silver_orders": [("+ name string", outcome)]}
    assert plan.summary.as_before == 0


def test_a_table_that_was_refused_is_known_by_name(tmp_path: Path) -> None:
    lake = FramedLake(tmp_path, declared={"contract": "freeze"})
    schema = lake.register("some subject", proto("Order { int32 n = 1; }"))
    lake.land([("orders", schema, FIRST)])
    plan = read_plan(lake.pipeline)
    assert (planned(plan), plan.summary.as_before, plan.summary.tables) == ({}, 1, 0)
    lake.declared = {}
    plan = read_plan(lake.pipeline)
    assert planned(plan) == {"silver_orders": [("new table with 8 columns", "applied")]}
    assert plan.summary.created == 1


def test_before_the_first_run_all_tables_are_new(tmp_path: Path) -> None:
    lake = FramedLake(tmp_path)
    lake.register("orders-value", proto("Order { int32 n = 1; }"))
    plan = read_plan(lake.pipeline)
    assert planned(plan) == {"silver_orders": [("new table with 8 columns", "applied")]}
    assert (plan.summary.tables, plan.summary.created) == (0, 1)
    assert not (tmp_path / "lake").exists()


def test_a_registry_without_schemas_plans_nothing(tmp_path: Path) -> None:
    plan = read_plan(FramedLake(tmp_path).pipeline)
    assert (plan.tables, plan.unusable, plan.without_table) == ((), (), ())


@pytest.mark.parametrize(
    ("mode", "outcome"),
    [("freeze", "refused"), ("discard_row", "quarantined"), ("discard_value", "discarded")],
)
def test_new_tables_may_be_refused(tmp_path: Path, mode: str, outcome: str) -> None:
    lake = FramedLake(tmp_path, declared={"contract": {"tables": mode}})
    lake.register("orders-value", proto("Order { int32 n = 1; }"))
    plan = read_plan(lake.pipeline)
    assert planned(plan) == {"silver_orders": [("new table with 1 columns", outcome)]}
    assert (plan.summary.created, plan.all_lands_as_it_is) == (0, False)


def test_tables_beyond_the_most_are_quarantined(tmp_path: Path) -> None:
    lake = orders(tmp_path, "int32 n = 1;", max_tables=2)
    for topic in ("a", "b"):
        lake.register(f"{topic}-value", proto("A { int32 n = 1; }"))
    assert planned(read_plan(lake.pipeline)) == {
        "silver_a": [("new table with 8 columns", "applied")],
        "silver_b": [("new table with 8 columns", "quarantined")],
    }


def test_subjects_that_are_no_topics_have_no_table_until_their_records_come(
    tmp_path: Path,
) -> None:
    lake = FramedLake(tmp_path)
    schema = lake.register("shop_Order", proto("Order { int32 n = 1; }"))
    assert read_plan(lake.pipeline).without_table == (SubjectVersion("shop_Order", 1, schema),)
    lake.land([("orders", schema, FIRST)])
    lake.register("shop_Order", proto("Order { int32 n = 1; int32 m = 2; }"))
    plan = read_plan(lake.pipeline)
    assert plan.without_table == ()
    assert planned(plan) == {"silver_orders": [("+ m int", "applied")]}


@pytest.mark.parametrize("source", [{"topics": ["orders"]}, {"pattern": "or.*"}])
def test_topics_that_are_not_read_and_keys_are_left_out(
    tmp_path: Path, source: dict[str, Any]
) -> None:
    lake = FramedLake(tmp_path, source=Kafka(servers="x:9092", **source))
    for subject in ("orders-value", "orders-key", "payments-value", "payments-key"):
        lake.register(subject, proto("A { int32 n = 1; }"))
    plan = read_plan(lake.pipeline)
    assert list(planned(plan)) == ["silver_orders"]
    assert plan.without_table == ()


def test_by_record_the_name_of_the_record_names_the_table(tmp_path: Path) -> None:
    lake = FramedLake(tmp_path, route="record")
    schema = lake.register("orders-value", proto("Order { int32 n = 1; }", "Line { int32 n = 1; }"))
    (new,) = read_plan(lake.pipeline).tables
    lake.land([("orders", schema, FIRST)])
    lake.register(
        "orders-value", proto("Order { int32 n = 1; int32 m = 2; }", "Line { int64 n = 1; }")
    )
    assert planned(read_plan(lake.pipeline)) == {new.table: [("+ m int", "applied")]}


def test_by_record_further_messages_count_where_they_have_a_table(tmp_path: Path) -> None:
    lake = FramedLake(tmp_path, route="record")
    schema = lake.register("orders-value", proto("Order { int32 n = 1; }", "Line { int32 n = 1; }"))
    lake.land([("orders", schema, SECOND)])
    (line,) = [one.table for one in read_plan(lake.pipeline).tables if one.exists]
    assert line.startswith("silver_shop_line")
    lake.register(
        "orders-value", proto("Order { int32 n = 1; }", "Line { int32 n = 1; int32 m = 2; }")
    )
    assert planned(read_plan(lake.pipeline))[line] == [("+ m int", "applied")]


def test_a_registry_that_forgot_a_schema_has_nothing_to_say_of_its_table(tmp_path: Path) -> None:
    lake = orders(tmp_path, "int32 n = 1;")
    (schema,) = (tmp_path / "schemas").iterdir()
    schema.unlink()
    plan = read_plan(lake.pipeline)
    assert one_table(plan, "silver_orders").schemas == ()
    assert planned(plan) == {}


def test_a_table_that_is_gone_would_be_made_again(tmp_path: Path) -> None:
    lake = orders(tmp_path, "int32 n = 1;")
    (tmp_path / "lake" / "silver_orders").rename(tmp_path / "away")
    assert planned(read_plan(lake.pipeline)) == {
        "silver_orders": [("new table with 8 columns", "applied")]
    }


def test_nothing_is_written(tmp_path: Path) -> None:
    lake = orders(tmp_path, "int32 n = 1;", "int64 n = 1; string name = 2;")
    lake.register("payments-value", proto("A { int32 n = 1; }"))
    before = _files(tmp_path)
    assert len(planned(read_plan(lake.pipeline))) == 2
    assert _files(tmp_path) == before


def test_a_registry_over_http_gives_the_same_plan(tmp_path: Path) -> None:
    lake = orders(tmp_path, "int32 n = 1;", "string n = 1; string name = 2;")
    lake.register("payments-value", proto("A { int32 n = 1; }"))
    lake.register("refunds-value", proto("nonsense"))
    from_folder = read_plan(lake.pipeline)
    with fake_registry(folder_responses(lake.registry)) as fake:
        lake.declared = {"registry": fake.url}
        assert read_plan(lake.pipeline) == from_folder
        assert sorted(fake.requests) == sorted(set(fake.requests))


def test_a_schema_under_many_subjects_is_that_of_the_subject_called_like_the_table(
    tmp_path: Path,
) -> None:
    lake = orders(tmp_path, "int32 n = 1;")
    lake.register("special", proto("Order { int32 n = 1; int32 special = 2; }"))
    answers = folder_responses(lake.registry)
    both = [{"subject": "special", "version": 1}, {"subject": "orders-value", "version": 1}]
    answers["/schemas/ids/1/versions"] = Response(body=both)
    with fake_registry(answers) as fake:
        lake.declared = {"registry": fake.url}
        plan = read_plan(lake.pipeline)
    assert planned(plan) == {}
    assert plan.without_table == (SubjectVersion("special", 1, 2),)


def test_a_registry_that_is_down_is_the_known_error(tmp_path: Path) -> None:
    lake = orders(tmp_path, "int32 n = 1;")
    down = Response(500, {"error_code": 50001, "message": "store"})
    with fake_registry({"/subjects": down}) as fake:
        lake.declared = {"registry": {"url": fake.url, "timeout": "1ms"}}
        with pytest.raises(RegistryUnavailable) as caught:
            read_plan(lake.pipeline)
    assert caught.value.code == "registry-unavailable"
    assert caught.value.hint is not None


def _refused(folder: Path) -> FramedLake:
    """A schema with one column more has come, and was refused."""
    lake = FramedLake(folder, declared={"contract": {"columns": "freeze"}})
    bodies = "int32 n = 1;", "int32 n = 1; string name = 2;"
    ids = [lake.register("orders-value", proto(f"Order {{ {body} }}")) for body in bodies]
    lake.land([("orders", each, FIRST) for each in ids])
    return lake


def _files(folder: Path) -> dict[Path, tuple[int, int]]:
    stats = ((path, path.stat()) for path in folder.rglob("*"))
    return {path: (stat.st_mtime_ns, stat.st_size) for path, stat in stats}
