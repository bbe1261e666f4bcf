from __future__ import annotations

from datetime import UTC, datetime

import pytest

from headgate.lab.shop.simulate import BinaryLog, DatabaseModel
from headgate.lab.shop.statement import (
    AddColumnStatement,
    AlterTable,
    Change,
    Column,
    CreateTableStatement,
    Delete,
    DropColumnStatement,
    Insert,
    Statement,
    Update,
    WidenColumn,
)

_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_LINES = CreateTableStatement(
    "lines", (Column("order", "int"), Column("line", "int"), Column("n", "int")), ("order", "line")
)
_THREE = Insert(
    "lines",
    (
        {"order": 1, "line": 1, "n": 5},
        {"order": 1, "line": 2, "n": 5},
        {"order": 2, "line": 1, "n": 5},
    ),
)


def _model(*statements: Statement) -> DatabaseModel:
    model = DatabaseModel()
    for statement in (_LINES, _THREE, *statements):
        model.apply(statement, _NOW)
    return model


def _told(changes: list[Change]) -> list[tuple[str, tuple[object, ...]]]:
    return [(change.kind, tuple(change.values.values())) for change in changes]


def test_rows_of_one_statement_stand_at_one_position() -> None:
    model = DatabaseModel()
    model.apply(_LINES, _NOW)
    changes = model.apply(_THREE, _NOW)
    assert _told(changes) == [("INSERT", (1, 1, 5)), ("INSERT", (1, 2, 5)), ("INSERT", (2, 1, 5))]
    assert len({(change.log_file, change.log_position) for change in changes}) == 1
    (later,) = model.apply(Delete("lines", {"order": 2, "line": 1}), _NOW)
    assert later.log_position > changes[0].log_position


def test_update_of_part_of_a_key_changes_several_rows() -> None:
    changes = _model().apply(Update("lines", {"order": 1}, {"n": 6}), _NOW)
    assert _told(changes) == [("UPDATE", (1, 1, 6)), ("UPDATE", (1, 2, 6))]


def test_update_that_changes_nothing_is_not_logged() -> None:
    changes = _model().apply(Update("lines", {"order": 1}, {"n": 5}), _NOW)
    assert changes == []


def test_key_that_changes_goes_and_comes_at_one_position() -> None:
    model = _model(Delete("lines", {"order": 1, "line": 1}))
    changes = model.apply(Update("lines", {"order": 1, "line": 2}, {"line": 1}), _NOW)
    assert _told(changes) == [("UPDATE-DELETE", (1, 2, 5)), ("UPDATE-INSERT", (1, 1, 5))]
    assert [change.is_deleted for change in changes] == [True, False]
    assert changes[0].log_position == changes[1].log_position
    assert [row["line"] for row in model.tables["lines"].rows] == [1, 1]


def test_delete_tells_the_last_of_a_row() -> None:
    model = _model()
    assert _told(model.apply(Delete("lines", {"order": 1}), _NOW)) == [
        ("DELETE", (1, 1, 5)),
        ("DELETE", (1, 2, 5)),
    ]
    assert model.tables["lines"].rows == [{"order": 2, "line": 1, "n": 5}]


def test_existing_row_cannot_be_inserted() -> None:
    with pytest.raises(ValueError, match="duplicate key"):
        _model(_THREE)


def test_columns_come_and_go_without_changes_of_rows() -> None:
    model = _model()
    for change in (
        AddColumnStatement(Column("gift", "boolean")),
        WidenColumn(Column("order", "bigint")),
        DropColumnStatement("n"),
    ):
        assert model.apply(AlterTable("lines", change), _NOW) == []
    table = model.tables["lines"]
    assert table.columns == (
        Column("order", "bigint"),
        Column("line", "int"),
        Column("gift", "boolean"),
    )
    assert table.rows[0] == {"order": 1, "line": 1, "gift": None}
    (deleted,) = model.apply(Delete("lines", {"order": 2, "line": 1}), _NOW)
    assert deleted.columns == table.columns
    assert deleted.values == {"order": 2, "line": 1, "gift": None}


def test_backfill_reads_rows_and_not_the_log() -> None:
    rows = _model().backfill("lines", _NOW)
    assert [row.key for row in rows] == [(1, 1), (1, 2), (2, 1)]
    assert {(row.kind, row.log_file, row.log_position, row.backfill) for row in rows} == {
        ("INSERT", "", 0, True)
    }


def test_log_goes_on_in_a_new_file_when_one_is_full() -> None:
    log = BinaryLog(roll_over=500)
    places = [log.append(100) for _ in range(4)]
    assert places == [
        ("mysql-bin.000001", 284),
        ("mysql-bin.000001", 564),
        ("mysql-bin.000002", 284),
        ("mysql-bin.000002", 564),
    ]


def test_number_of_a_log_file_outgrows_its_zeros() -> None:
    log = BinaryLog(roll_over=100, first_file=999_999)
    assert [log.append(1)[0] for _ in range(2)] == ["mysql-bin.999999", "mysql-bin.1000000"]
