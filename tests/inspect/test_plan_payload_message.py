"""Plans for schemas that define several messages."""

from __future__ import annotations

from headgate.inspect.plan import PipelinePlan, read_plan
from headgate.registry.registry import SchemaText
from tests.engine.games import wrapped
from tests.inspect.small_lake import SmallLake

IN = "message In { int32 a = 5; }"


def register(lake: SmallLake, *messages: str) -> int:
    text = f'syntax = "proto3"; {" ".join(messages)}'
    return lake.registry.register("chess-value", SchemaText("PROTOBUF", text))


def planned(plan: PipelinePlan) -> dict[str, list[str]]:
    return {one.table: [str(asked.change) for asked in one.changes] for one in plan.tables}


def test_plan_takes_the_message_that_records_are_decoded_as(empty_lake: SmallLake) -> None:
    first = register(empty_lake, IN, "message event { int32 n = 1; In in = 2; }")
    empty_lake.land_values([wrapped("chess", first, b"\x08\x01")])
    register(empty_lake, IN, "message event { int32 n = 1; In in = 2; string s = 3; }")
    assert planned(read_plan(empty_lake.pipeline)) == {"silver_chess": ["+ s string"]}


def test_plan_takes_the_message_that_is_declared_for_the_route(empty_lake: SmallLake) -> None:
    first = register(empty_lake, "message event { int32 n = 1; }")
    empty_lake.land_values([wrapped("chess", first, b"\x08\x01")])
    register(empty_lake, "message event { int32 n = 1; string s = 2; }", "message Other {}")
    [unusable] = read_plan(empty_lake.pipeline).unusable
    assert (unusable.reason, unusable.tables) == ("message_ambiguous", ("silver_chess",))
    assert unusable.detail == "the payload can be any of the messages event, Other"
    plan = read_plan(empty_lake.declare("payload_message: {chess: event}"))
    assert (planned(plan), plan.unusable) == ({"silver_chess": ["+ s string"]}, ())
    [unusable] = read_plan(empty_lake.declare("payload_message: Event")).unusable
    assert (unusable.reason, unusable.tables) == ("message_unknown", ("silver_chess",))


def test_plan_says_which_schemas_without_a_table_cannot_be_used(empty_lake: SmallLake) -> None:
    register(empty_lake, "message event { int32 n = 1; }", "message Other {}")
    [unusable] = read_plan(empty_lake.pipeline).unusable
    assert (unusable.reason, unusable.tables) == ("message_ambiguous", ())
    plan = read_plan(empty_lake.declare("payload_message: {chess: event}"))
    assert plan.unusable == ()
    assert [str(one) for one in plan.without_table] == ["chess-value@1"]


def test_column_of_unknown_fields_is_not_planned_to_be_dropped(empty_lake: SmallLake) -> None:
    text = """syntax = "proto2"; message event { optional int32 n = 1; extensions 9; }"""
    first = empty_lake.registry.register("chess-value", SchemaText("PROTOBUF", text))
    empty_lake.land_values([wrapped("chess", first, b"\x48\x01")])
    register(empty_lake, "message event { int32 n = 1; int32 m = 2; }")
    assert planned(read_plan(empty_lake.pipeline)) == {"silver_chess": ["+ m int"]}
