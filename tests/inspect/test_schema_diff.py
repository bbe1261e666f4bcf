from __future__ import annotations

from pathlib import Path

import pytest

from headgate.errors import HeadgateError
from headgate.inspect.schema_diff import SchemaDiff, read_schema_diff
from headgate.registry.registry import SchemaText
from tests.inspect.framed_lake import FramedLake, proto
from tests.inspect.small_lake import SmallLake
from tests.registry.fake_registry import fake_registry, folder_responses

ONE_COLUMN_MORE = [("+ col_chess_game_2 string", "applied")]


def told(diff: SchemaDiff) -> list[tuple[str, str]]:
    return [(str(change), change.outcome.value) for change in diff.changes]


@pytest.mark.parametrize(
    ("first", "second", "names"),
    [
        ("2", "9", ("schema 2", "schema 9")),
        ("chess-value@2", "chess-value", None),
        ("chess-value@2", "chess-value@3", None),
        ("silver_chess@0", "silver_chess", ("table silver_chess version 0", None)),
        ("chess@0", "chess", ("table silver_chess version 0", "table silver_chess version 1")),
        ("2", "silver_chess", None),
        ("chess@0", "9", None),
        ("chess-value@2", "chess@1", ("subject chess-value version 2, schema 2", None)),
    ],
)
def test_columns_go_by_many_names(
    lake: SmallLake, first: str, second: str, names: tuple[str, str | None] | None
) -> None:
    diff = read_schema_diff(first, second, lake.pipeline)
    assert told(diff) == ONE_COLUMN_MORE
    for schema, name in zip((diff.first, diff.second), names or (), strict=False):
        assert name is None or str(schema) == name


def test_the_way_back_drops_what_was_added(lake: SmallLake) -> None:
    diff = read_schema_diff("9", "2", lake.pipeline)
    assert told(diff) == [("col_chess_game_2 is no longer sent; the column stays", "applied")]
    assert diff.changes[0].breaking


def test_a_schema_and_itself_differ_in_nothing(lake: SmallLake) -> None:
    assert told(read_schema_diff("silver_chess", "chess-value", lake.pipeline)) == []


def test_files_need_no_pipeline(tmp_path: Path) -> None:
    (tmp_path / "types.proto").write_text('syntax = "proto3"; message P { int32 x = 1; }')
    old = (
        'syntax = "proto3"; import "types.proto"; message A { int32 n = 1; P p = 2; int32 o = 3; }'
    )
    new = 'syntax = "proto3"; message B {} message A { int64 n = 1; string name = 3; B b = 4; }'
    (tmp_path / "old.proto").write_text(old)
    (tmp_path / "new.proto").write_text(new)
    diff = read_schema_diff(str(tmp_path / "old.proto"), str(tmp_path / "new.proto"))
    assert told(diff) == [
        ("n widens from int to long", "applied"),
        ("o is renamed to name", "kept apart"),
        ("+ b boolean", "applied"),
        ("p is no longer sent; the column stays", "applied"),
    ]
    assert str(diff.first) == f"file {tmp_path}/old.proto"


def test_file_of_several_messages_needs_a_pipeline_that_chooses_one(empty_lake: SmallLake) -> None:
    old, new = (str(empty_lake.folder / name) for name in ("chess.proto", "go.proto"))
    Path(old).write_text('syntax = "proto3"; message A { int32 n = 1; } message B { int32 m = 1; }')
    Path(new).write_text('syntax = "proto3"; message A { int32 k = 1; } message B { int64 m = 1; }')
    with pytest.raises(HeadgateError, match="any of the messages A, B") as caught:
        read_schema_diff(old, new)
    assert caught.value.hint == (
        "name a pipeline whose `envelope.wrapper.payload_message` chooses one"
    )
    pipeline = empty_lake.declare("payload_message: B")
    assert told(read_schema_diff(old, new, pipeline)) == [("m widens from int to long", "applied")]
    pipeline = empty_lake.declare("payload_message: {chess: A, go: B}")
    assert told(read_schema_diff(old, new, pipeline)) == [("n is renamed to m", "kept apart")]


def test_registered_schema_of_several_messages_is_the_declared_one(empty_lake: SmallLake) -> None:
    for body in ("int32 m = 1;", "int32 m = 1; string s = 2;"):
        text = f'syntax = "proto3"; message A {{ int32 n = 1; }} message B {{ {body} }}'
        empty_lake.registry.register("chess-value", SchemaText("PROTOBUF", text))
    with pytest.raises(HeadgateError, match="schema 1: the payload can be any of") as caught:
        read_schema_diff("1", "2", empty_lake.pipeline)
    assert caught.value.hint == "name the message in `envelope.wrapper.payload_message`"
    pipeline = empty_lake.declare("payload_message: {chess: B}")
    for first, second in (("1", "2"), ("chess-value@1", "chess-value")):
        diff = read_schema_diff(first, second, pipeline)
        assert told(diff) == [("+ s string", "applied")]


def test_protobuf_and_avro_can_be_compared(tmp_path: Path) -> None:
    (tmp_path / "a.proto").write_text('syntax = "proto3"; message A { int32 n = 1; }')
    avro = '{"type": "record", "name": "A", "fields": [{"name": "n", "type": "string"}]}'
    (tmp_path / "a.avsc").write_text(avro)
    diff = read_schema_diff(str(tmp_path / "a.proto"), str(tmp_path / "a.avsc"))
    assert told(diff) == [("n is int; string values go to n__string", "kept apart")]


def test_fields_inside_a_column_are_missed_too(tmp_path: Path) -> None:
    head = 'syntax = "proto3"; message A { repeated P p = 1; map<string, P> m = 2; P s = 3; } '
    (tmp_path / "old.proto").write_text(head + "message P { int32 x = 1; int32 y = 2; }")
    (tmp_path / "new.proto").write_text(head + "message P { int32 x = 1; int32 z = 3; }")
    diff = read_schema_diff(str(tmp_path / "old.proto"), str(tmp_path / "new.proto"))
    assert [(change.kind, change.column) for change in diff.changes] == [
        ("AddNestedField", "p.element.z"),
        ("AddNestedField", "m.value.z"),
        ("AddNestedField", "s.z"),
        ("DropColumn", "p.element.y"),
        ("DropColumn", "m.value.y"),
        ("DropColumn", "s.y"),
    ]


@pytest.mark.parametrize(
    ("contract", "outcome"),
    [
        ("evolve", "applied"),
        ("freeze", "refused"),
        ("discard_row", "quarantined"),
        ({"columns": "freeze", "per_table": {"silver_o*": "discard_value"}}, "discarded"),
    ],
)
def test_the_contract_of_the_table_decides(tmp_path: Path, contract: object, outcome: str) -> None:
    lake = _orders(tmp_path)
    lake.declared = {"contract": contract}
    diff = read_schema_diff("orders", "orders-value", lake.pipeline)
    assert told(diff) == [("+ name string", outcome)]


def test_without_a_table_the_contract_of_all_decides(tmp_path: Path) -> None:
    lake = _orders(tmp_path)
    lake.declared = {"contract": {"columns": "freeze", "per_table": {"*": "evolve"}}}
    diff = read_schema_diff("orders-value@1", "orders-value", lake.pipeline)
    assert told(diff) == [("+ name string", "refused")]


def test_a_table_too_large_to_rewrite_keeps_the_larger_type_apart(tmp_path: Path) -> None:
    lake = _orders(tmp_path)
    lake.register("orders-value", proto("Order { int64 n = 1; }"))
    lake.declared = {"contract": {"rewrite_up_to": "1 B"}}
    diff = read_schema_diff("orders", "orders-value", lake.pipeline)
    assert told(diff) == [("n is int; long values go to n__long", "kept apart")]


def test_a_table_comes_before_a_subject_of_the_same_name(tmp_path: Path) -> None:
    lake = _orders(tmp_path)
    lake.register("orders", proto("Order { string n = 1; }"))
    diff = read_schema_diff("orders", "orders", lake.pipeline)
    assert str(diff.first) == str(diff.second) == "table silver_orders version 0"


def test_a_registry_over_http_is_asked_the_same(tmp_path: Path) -> None:
    lake = _orders(tmp_path)
    with fake_registry(folder_responses(lake.registry)) as fake:
        lake.declared = {"registry": fake.url}
        diff = read_schema_diff("orders-value@1", "orders-value", lake.pipeline)
        assert told(diff) == [("+ name string", "applied")]
        assert told(read_schema_diff("1", "2", lake.pipeline)) == told(diff)


@pytest.mark.parametrize(
    ("name", "code", "hint"),
    [
        ("ches", "name-unknown", "did you mean `silver_chess`?"),
        ("ches-value", "name-unknown", "did you mean `chess-value`?"),
        ("x" * 40, "name-unknown", "headgate tables lists all tables"),
        ("x" * 40 + "@7", "name-unknown", "headgate tables lists all tables"),
        (
            "silver_chess@99",
            "table-unknown",
            "its newest version is 1; old versions may have been cleaned up",
        ),
        ("chess-value@99", "schema-unknown", None),
        ("99", "schema-unknown", None),
        ("./missing.proto", "bad-argument", None),
    ],
)
def test_a_name_that_is_unknown_is_an_error_with_a_suggestion(
    lake: SmallLake, name: str, code: str, hint: str | None
) -> None:
    with pytest.raises(HeadgateError) as caught:
        read_schema_diff("silver_chess", name, lake.pipeline)
    assert (caught.value.code, caught.value.hint) == (code, hint)


def test_a_schema_that_cannot_be_compiled_is_an_error(tmp_path: Path) -> None:
    lake = _orders(tmp_path)
    lake.register("orders-value", proto("nonsense"))
    (tmp_path / "broken.avsc").write_text("{")
    for name in ("orders-value", "3", str(tmp_path / "broken.avsc")):
        with pytest.raises(HeadgateError) as caught:
            read_schema_diff(name, "1", lake.pipeline)
        assert caught.value.code == "schema-refused"


def test_a_name_without_a_pipeline_is_no_file() -> None:
    with pytest.raises(HeadgateError, match="`chess` is not a file") as caught:
        read_schema_diff("chess", "./x.proto")
    assert caught.value.exit_code == 2


def _orders(folder: Path) -> FramedLake:
    lake = FramedLake(folder)
    first = lake.register("orders-value", proto("Order { int32 n = 1; }"))
    lake.land([("orders", first, b"\0")])
    lake.register("orders-value", proto("Order { int32 n = 1; string name = 2; }"))
    return lake
