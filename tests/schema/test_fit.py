from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.config import Mode, Rules
from headgate.schema.changes import (
    AddColumn,
    AddNestedField,
    CaseTwin,
    MakeOptional,
    NarrowType,
    Outcome,
    RenameColumn,
    RetypeColumn,
    SchemaChange,
    WidenType,
)
from headgate.schema.field_metadata import field_number, kept_apart_from, with_field_metadata
from headgate.schema.fit import ColumnMapping, fit, type_name, type_suffix, widens
from headgate.schema.names import column_twin

EMPTY = pa.schema([])
POINT = pa.struct([("x", pa.int32())])
POINT_Y = pa.struct([("y", pa.int32()), ("x", pa.int32())])


def schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema(list(columns.items()))


def test_new_table_takes_the_columns_of_the_file() -> None:
    file = schema(a=pa.int32(), b=POINT)
    fitted = fit(file, EMPTY)
    assert fitted.schema == file
    assert fitted.changes == (AddColumn("a", "int"), AddColumn("b", "struct<x:int>"))
    assert fitted.is_identity


def test_new_column_comes_last() -> None:
    fitted = fit(schema(b=pa.string(), a=pa.int32()), schema(a=pa.int32()))
    assert fitted.schema == schema(a=pa.int32(), b=pa.string())
    assert fitted.changes == (AddColumn("b", "string"),)
    assert fitted.is_identity


def test_column_that_the_file_lacks_stays() -> None:
    fitted = fit(schema(a=pa.int32()), schema(a=pa.int32(), gone=pa.string()))
    assert fitted.schema == schema(a=pa.int32(), gone=pa.string())
    assert fitted.changes == ()


@pytest.mark.parametrize(
    ("before", "file", "after", "path"),
    [
        (POINT, POINT_Y, pa.struct([("x", pa.int32()), ("y", pa.int32())]), "p.y"),
        (
            pa.list_(POINT),
            pa.list_(POINT_Y),
            pa.list_(pa.struct([("x", pa.int32()), ("y", pa.int32())])),
            "p.element.y",
        ),
        (
            pa.map_(pa.string(), POINT),
            pa.map_(pa.string(), POINT_Y),
            pa.map_(pa.string(), pa.struct([("x", pa.int32()), ("y", pa.int32())])),
            "p.value.y",
        ),
        (
            pa.list_(pa.struct([("in", pa.list_(POINT))])),
            pa.list_(pa.struct([("in", pa.list_(POINT_Y))])),
            pa.list_(
                pa.struct([("in", pa.list_(pa.struct([("x", pa.int32()), ("y", pa.int32())])))])
            ),
            "p.element.in.element.y",
        ),
    ],
    ids=["struct", "list", "map", "nested lists"],
)
def test_nested_field_is_added_to_its_struct(
    before: pa.DataType, file: pa.DataType, after: pa.DataType, path: str
) -> None:
    fitted = fit(schema(p=file), schema(p=before))
    assert fitted.schema.field("p").type == after
    assert fitted.changes == (AddNestedField(path, "int"),)
    assert fitted.is_identity


@pytest.mark.parametrize(
    ("file", "table"),
    [
        (pa.int8(), pa.int64()),
        (pa.int32(), pa.int64()),
        (pa.float32(), pa.float64()),
        (pa.decimal128(10, 2), pa.decimal128(14, 4)),
        (pa.int64(), pa.decimal128(20, 0)),
        (pa.list_(pa.int32()), pa.list_(pa.int64())),
        (pa.map_(pa.int32(), pa.int32()), pa.map_(pa.int64(), pa.int64())),
        (pa.struct([("x", pa.int32())]), pa.struct([("x", pa.int64()), ("y", pa.string())])),
    ],
    ids=str,
)
def test_narrower_type_is_widened_to_the_tables(file: pa.DataType, table: pa.DataType) -> None:
    fitted = fit(schema(a=file), schema(a=table))
    assert fitted.schema == schema(a=table)
    assert {type(change) for change in fitted.changes} == {NarrowType}
    assert fitted.mappings == (ColumnMapping("a", "a", table),)
    assert not fitted.is_identity


@pytest.mark.parametrize(
    ("table", "file", "into"),
    [
        (pa.int32(), pa.string(), "a__string"),
        (pa.int64(), pa.float64(), "a__double"),
        (pa.int32(), pa.float64(), "a__double"),
        (pa.string(), pa.binary(), "a__binary"),
        (pa.timestamp("us", "UTC"), pa.timestamp("us"), "a__timestamp_ntz"),
        (POINT, pa.int32(), "a__int"),
        (pa.int32(), pa.decimal128(9, 0), f"a__{type_suffix(pa.decimal128(9, 0))}"),
        (pa.int32(), POINT, f"a__{type_suffix(POINT)}"),
        (
            POINT,
            pa.struct([("X", pa.int32())]),
            f"a__{type_suffix(pa.struct([('X', pa.int32())]))}",
        ),
        (pa.list_(pa.int32()), pa.list_(pa.string()), f"a__{type_suffix(pa.list_(pa.string()))}"),
    ],
    ids=str,
)
def test_type_that_the_column_cannot_hold_is_kept_apart(
    table: pa.DataType, file: pa.DataType, into: str
) -> None:
    fitted = fit(schema(a=file), schema(a=table))
    assert fitted.schema == pa.schema([("a", table), (into, file)])
    assert fitted.changes == (RetypeColumn("a", type_name(table), type_name(file), into),)
    assert fitted.mappings == (ColumnMapping("a", into),)
    again = fit(schema(a=file), fitted.schema)
    assert (again.schema, again.changes, again.mappings) == (fitted.schema, (), fitted.mappings)


def test_case_twin_of_a_column_gets_a_unique_name() -> None:
    twin = column_twin("userid")
    fitted = fit(schema(userid=pa.int32()), schema(userId=pa.int32()))
    assert fitted.schema == pa.schema([("userId", pa.int32()), (twin, pa.int32())])
    assert fitted.changes == (CaseTwin("userid", twin),)
    again = fit(schema(userid=pa.int32()), fitted.schema)
    assert (again.changes, again.mappings) == ((), (ColumnMapping("userid", twin),))


def test_twins_in_one_file_are_both_mapped() -> None:
    fitted = fit(schema(a=pa.int32(), A=pa.string()), schema(A=pa.string()))
    assert [one.target for one in fitted.mappings] == [column_twin("a"), "A"]


def test_generated_names_do_not_collide_with_fields() -> None:
    table = schema(a=pa.int32(), a__string=pa.int32())
    fitted = fit(schema(a=pa.string()), table)
    assert fitted.mappings == (ColumnMapping("a", column_twin("a__string")),)

    both = fit(schema(a=pa.string(), a__string=pa.string()), schema(a=pa.int32()))
    assert [one.target for one in both.mappings] == ["a__string", column_twin("a__string")]


def test_types_have_their_spark_names() -> None:
    kind = pa.struct(
        [("a", pa.list_(pa.int64())), ("b", pa.map_(pa.string(), pa.decimal128(20, 0)))]
    )
    assert type_name(kind) == "struct<a:array<long>,b:map<string,decimal(20,0)>>"
    assert type_name(pa.timestamp("us", "UTC")) == "timestamp"
    assert type_suffix(kind).startswith("struct_")
    assert type_suffix(kind).isidentifier()


def test_change_has_an_outcome() -> None:
    retype = RetypeColumn("a", "int", "string", "a__string")
    assert str(retype) == "a is int; string values go to a__string"
    assert retype.as_record() == {
        "change": "RetypeColumn",
        "outcome": "kept apart",
        "column": "a",
        "was": "int",
        "type": "string",
        "into": "a__string",
    }
    assert AddColumn("a", "int").as_record()["outcome"] == "applied"


LEAVES = [pa.int32(), pa.int64(), pa.float64(), pa.string(), pa.decimal128(20, 0)]
types = st.recursive(
    st.sampled_from(LEAVES),
    lambda inside: (
        inside.map(pa.list_)
        | inside.map(lambda item: pa.map_(pa.string(), item))
        | st.dictionaries(st.sampled_from("xyz"), inside, min_size=1).map(
            lambda fields: pa.struct(list(fields.items()))
        )
    ),
    max_leaves=3,
)
NAMES = ["a", "A", "b", "a__string", "a__long", column_twin("a"), column_twin("A")]
files = st.dictionaries(st.sampled_from(NAMES), types, max_size=4).map(
    lambda columns: pa.schema(list(columns.items()))
)


def holds(larger: pa.DataType, smaller: pa.DataType) -> bool:
    """Whether a column of one type can hold all values of another."""
    if pa.types.is_struct(smaller):
        return pa.types.is_struct(larger) and all(
            larger.get_field_index(one.name) >= 0 and holds(larger.field(one.name).type, one.type)
            for one in smaller
        )
    if pa.types.is_map(smaller):
        return pa.types.is_map(larger) and holds(larger.item_type, smaller.item_type)
    if pa.types.is_list(smaller):
        return pa.types.is_list(larger) and holds(larger.value_type, smaller.value_type)
    return bool(larger.equals(smaller)) or widens(smaller, larger)


@given(st.lists(files, max_size=6))
@settings(deadline=None)
@example([schema(a=pa.int32(), a__string=pa.int32()), schema(a=pa.string())])
@example([schema(a=pa.int32()), schema(a=pa.string(), a__string=pa.string())])
@example([pa.schema([("a", pa.int32()), (column_twin("A"), pa.string()), ("A", pa.int32())])])
def test_every_column_is_mapped_and_no_column_is_lost(sequence: list[pa.Schema]) -> None:
    table = EMPTY
    for file in sequence:
        fitted = fit(file, table)
        after = fitted.schema

        assert after.names[: len(table)] == table.names
        assert all(holds(after.field(one.name).type, one.type) for one in table)
        assert len({name.lower() for name in after.names}) == len(after)

        assert [one.source for one in fitted.mappings] == file.names
        targets = [one.target for one in fitted.mappings]
        assert len(set(targets)) == len(targets)
        assert all(
            _takes(after.field(one.target).type, file.field(one.source).type, one)
            for one in fitted.mappings
        )
        asked = [change for change in fitted.changes if change.decided_by]
        assert (after != table) == bool(asked)

        again = fit(file, after)
        assert not [change for change in again.changes if change.decided_by]
        assert (again.schema, again.mappings) == (after, fitted.mappings)
        table = after


def _takes(column: pa.DataType, field: pa.DataType, mapping: ColumnMapping) -> bool:
    return holds(column, field) and (mapping.type is None or mapping.type.equals(column))


def numbered(name: str, number: int, required: bool = False) -> pa.Field:
    return with_field_metadata(pa.field(name, pa.int32()), number, required)


def test_wider_type_widens_the_column() -> None:
    fitted = fit(schema(a=pa.int64(), b=POINT), schema(a=pa.int32(), b=POINT))
    assert fitted.schema == schema(a=pa.int64(), b=POINT)
    assert fitted.changes == (WidenType("a", "int", "long"),)
    assert fitted.is_identity


def test_nested_type_is_widened() -> None:
    fitted = fit(schema(p=pa.list_(pa.struct([("x", pa.int64())]))), schema(p=pa.list_(POINT)))
    assert fitted.changes == (WidenType("p.element.x", "int", "long"),)


def test_column_that_may_not_be_widened_gets_a_companion() -> None:
    fitted = fit(schema(a=pa.int64()), schema(a=pa.int32()), may_widen=False)
    assert fitted.changes == (RetypeColumn("a", "int", "long", "a__long"),)
    # Even if the column may be widened later, the values stay in their own column.
    assert fit(schema(a=pa.int64()), fitted.schema).mappings == (ColumnMapping("a", "a__long"),)


def test_field_with_the_number_of_a_column_is_that_column_renamed() -> None:
    table = pa.schema([numbered("points", 1), numbered("level", 2)])
    file = pa.schema([numbered("score", 1), numbered("level", 2)])
    fitted = fit(file, table)
    assert fitted.changes == (RenameColumn("score", "points", "int"),)
    assert fitted.changes[0].outcome is Outcome.KEPT_APART
    assert fitted.schema.names == ["points", "level", "score"]


def test_field_beside_the_column_of_its_number_is_new() -> None:
    table = pa.schema([numbered("points", 1)])
    fitted = fit(pa.schema([numbered("points", 3), numbered("score", 1)]), table)
    assert fitted.changes == (AddColumn("score", "int"),)


def test_field_that_is_no_longer_required_is_reported() -> None:
    table = pa.schema([numbered("points", 1, required=True)])
    assert fit(pa.schema([numbered("points", 1)]), table).changes == (MakeOptional("points"),)
    assert fit(pa.schema([numbered("points", 1, required=True)]), table).changes == ()


def test_columns_have_field_metadata() -> None:
    fitted = fit(pa.schema([numbered("a", 7, required=True)]), EMPTY)
    again = fit(schema(a=pa.string()), fitted.schema).schema
    assert field_number(again.field("a")) == 7
    assert kept_apart_from(again.field("a__string")) == "a"


def test_struct_kept_apart_gets_new_fields() -> None:
    first = fit(schema(a=POINT), schema(a=pa.int32()))
    second = fit(schema(a=POINT_Y), first.schema)
    assert [one.target for one in second.mappings] == [one.target for one in first.mappings]
    assert {type(change) for change in second.changes} == {AddNestedField}


STRICT = {
    Mode.FREEZE: Outcome.REFUSED,
    Mode.DISCARD_ROW: Outcome.QUARANTINED,
    Mode.DISCARD_VALUE: Outcome.DISCARDED,
}


@pytest.mark.parametrize("mode", STRICT, ids=str)
def test_contract_blocks_new_columns(mode: Mode) -> None:
    table = schema(a=pa.int32(), p=POINT)
    file = schema(a=pa.int64(), p=POINT_Y, A=pa.int32(), new=pa.string())
    fitted = fit(file, table, Rules(columns=mode))
    outcomes = {type(change): change.outcome for change in fitted.changes}
    assert outcomes == {
        WidenType: Outcome.APPLIED,
        AddNestedField: STRICT[mode],
        CaseTwin: STRICT[mode],
        AddColumn: STRICT[mode],
    }
    assert fitted.schema == schema(a=pa.int64(), p=POINT)
    assert fitted.mappings == (ColumnMapping("a", "a"), ColumnMapping("p", "p", POINT))
    assert len(fitted.blocked) == 3


@pytest.mark.parametrize("mode", STRICT, ids=str)
def test_contract_blocks_new_types(mode: Mode) -> None:
    table = schema(a=pa.int32(), b=pa.int32(), p=POINT)
    file = schema(a=pa.int64(), b=pa.string(), p=pa.struct([("x", pa.string())]), c=pa.int32())
    fitted = fit(file, table, Rules(types=mode))
    assert fitted.schema == schema(a=pa.int32(), b=pa.int32(), p=POINT, c=pa.int32())
    outcomes = {change.column: change.outcome for change in fitted.changes}
    assert outcomes == {
        "a": STRICT[mode],
        "b": STRICT[mode],
        "p.x": STRICT[mode],
        "c": Outcome.APPLIED,
    }


def test_contract_does_not_block_columns_that_the_table_has() -> None:
    grown = fit(schema(a=pa.string()), schema(a=pa.int32())).schema
    fitted = fit(schema(a=pa.string()), grown, Rules(types=Mode.FREEZE))
    assert (fitted.changes, fitted.mappings) == ((), (ColumnMapping("a", "a__string"),))


@given(st.lists(files, min_size=1, max_size=4), st.sampled_from(list(STRICT)))
@settings(deadline=None)
def test_frozen_table_never_changes(sequence: list[pa.Schema], mode: Mode) -> None:
    first, *rest = sequence
    table = fit(first, EMPTY).schema
    for file in rest:
        fitted = fit(file, table, Rules(columns=mode, types=mode))
        assert fitted.schema == table
        assert all(change.decided_by is None for change in fitted.changes) or fitted.blocked


def test_change_is_a_value() -> None:
    changes: set[SchemaChange] = {AddColumn("a", "int"), AddColumn("a", "int")}
    assert len(changes) == 1
