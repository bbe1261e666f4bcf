from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count, islice, pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.errors import UsageError
from headgate.lab.database import Database
from headgate.lab.services import down, up_database
from headgate.lab.shop.binary_log import LogPosition, connect
from headgate.lab.shop.database import ShopDatabase, read_tables, run_on_database, sql
from headgate.lab.shop.simulate import DatabaseModel, ShopPlan
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
from headgate.lab.shop.workload import statements
from tests.lab.shop.fold import fold, read_records

Rows = Mapping[str, Sequence[Mapping[str, object]]]
Folded = Mapping[str, Mapping[tuple[object, ...], Mapping[str, object]]]
NOW = datetime(2026, 1, 2, tzinfo=UTC)
_numbers = count(1)


@pytest.fixture
def name() -> str:
    """A database for one test only."""
    return f"shop_{next(_numbers)}"


@pytest.fixture
def shop(database: Database, name: str) -> Iterator[ShopDatabase]:
    with connect(database) as connection:
        yield ShopDatabase(database, connection, name)


def run(shop: ShopDatabase, *todo: Statement) -> list[Change]:
    for statement in todo:
        shop.run(statement)
    return shop.new_changes()


def rows_now(database: Database, name: str) -> Rows:
    with connect(database, name) as connection:
        return read_tables(connection)


def folded(changes: Iterable[Change]) -> Folded:
    tables: dict[str, dict[tuple[object, ...], Mapping[str, object]]] = {}
    for change in changes:
        rows = tables.setdefault(change.table, {})
        if change.is_deleted:
            del rows[change.key]
        else:
            rows[change.key] = change.values
    return tables


def assert_adds_up(tables: Folded, now: Rows) -> None:
    """The changes' rows are the tables' rows, as far as columns have come and gone since."""
    assert tables.keys() <= now.keys()
    for table, rows in now.items():
        names = list(rows[0]) if rows else []
        found = [{name: row.get(name) for name in names} for row in tables.get(table, {}).values()]
        assert sorted(map(repr, found)) == sorted(map(repr, rows))


def assert_files_add_up(landing: Path, now: Rows) -> None:
    assert_adds_up(fold(read_records(landing.rglob("*.avro"))), now)


def without_place(change: Change) -> Change:
    return replace(change, database="", log_file="", log_position=0, at=NOW)


@pytest.mark.parametrize("seed", [0, 1])
def test_log_tells_what_the_model_tells(shop: ShopDatabase, seed: int) -> None:
    model = DatabaseModel()
    expected, logged = [], []
    for number, statement in enumerate(islice(statements(seed), 400)):
        changes = model.apply(statement, NOW)
        assert shop.run(statement) == len(changes)
        expected += changes
        if number % 150 == 0:
            logged += shop.new_changes()
    logged += shop.new_changes()
    assert [without_place(change) for change in logged] == [*map(without_place, expected)]
    assert {change.kind for change in logged} == {
        "INSERT",
        "UPDATE",
        "UPDATE-INSERT",
        "UPDATE-DELETE",
        "DELETE",
    }


def test_changes_add_up_to_the_tables(shop: ShopDatabase, database: Database, name: str) -> None:
    changes = run(shop, *islice(statements(7), 600))
    places = [LogPosition(change.log_file, change.log_position) for change in changes]
    assert places == sorted(places)
    now = rows_now(database, name)
    assert sum(map(len, now.values())) > 200
    assert_adds_up(folded(changes), now)


def test_key_change_is_two_changes_at_one_place(shop: ShopDatabase) -> None:
    code = Column("code", "varchar", length=20)
    changes = run(
        shop,
        CreateTableStatement("vouchers", (code, Column("used", "boolean")), ("code",)),
        Insert("vouchers", ({"code": "A", "used": False},)),
        Update("vouchers", {"code": "A"}, {"code": "B", "used": True}),
        Update("vouchers", {"code": "B"}, {"code": "B", "used": False}),
    )
    assert [(change.kind, dict(change.values)) for change in changes] == [
        ("INSERT", {"code": "A", "used": False}),
        ("UPDATE-DELETE", {"code": "A", "used": False}),
        ("UPDATE-INSERT", {"code": "B", "used": True}),
        ("UPDATE", {"code": "B", "used": False}),
    ]
    assert len({change.log_position for change in changes}) == 3
    assert changes[1].log_position == changes[2].log_position


def test_each_change_has_the_columns_of_its_own_time(shop: ShopDatabase) -> None:
    number, note = Column("n", "int"), Column("note", "text")
    amount = Column("amount", "decimal", precision=12, scale=3)
    key = (Column("b", "int"), Column("a", "int"))
    changes = run(
        shop,
        CreateTableStatement("things", (*key, number), ("a", "b")),
        Insert("things", ({"a": 1, "b": 2, "n": 3},)),
        AlterTable("things", AddColumnStatement(note)),
        AlterTable("things", WidenColumn(Column("n", "bigint"))),
        AlterTable("things", WidenColumn(Column("a", "bigint"))),
        Update("things", {"a": 1, "b": 2}, {"n": 2**40, "note": "ä"}),
        AlterTable("things", DropColumnStatement("n")),
        AlterTable("things", AddColumnStatement(amount)),
        Update("things", {"a": 1}, {"amount": Decimal("-0.250")}),
        Delete("things", {"a": 1, "b": 2}),
    )
    wide_key = (Column("b", "int"), Column("a", "bigint"))
    first = (*key, number)
    second = (*wide_key, Column("n", "bigint"), note)
    third = (*wide_key, note, amount)
    assert [change.columns for change in changes] == [first, second, third, third]
    assert {change.primary_key for change in changes} == {("a", "b")}
    assert [*changes[2].values.values()] == [2, 1, "ä", Decimal("-0.250")]


COLUMNS = (
    Column("id", "int"),
    Column("large", "bigint"),
    Column("amount", "decimal", precision=20, scale=4),
    Column("short", "varchar", length=100),
    Column("long", "text"),
    Column("moment", "timestamp"),
    Column("day", "date"),
    Column("yes", "boolean"),
    Column("share", "double"),
    Column("facts", "json"),
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=100)
VALUES = {
    "large": st.integers(-(2**63), 2**63 - 1),
    "amount": st.decimals(-(10**16) + 1, 10**16 - 1, places=4, allow_nan=False),
    "short": TEXT,
    "long": TEXT,
    "moment": st.datetimes(
        datetime(1970, 1, 2), datetime(2038, 1, 1), timezones=st.just(UTC), allow_imaginary=False
    ),
    "day": st.dates(date(1000, 1, 1)),
    "yes": st.booleans(),
    "share": st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False),
    "facts": st.dictionaries(TEXT, TEXT, max_size=2).map(json.dumps),
}
NULLABLE = st.fixed_dictionaries({name: st.none() | value for name, value in VALUES.items()})


@pytest.fixture(scope="module")
def table_of_all_kinds(database: Database) -> Iterator[ShopDatabase]:
    with connect(database) as connection:
        shop = ShopDatabase(database, connection, "shop_of_all_kinds")
        shop.run(CreateTableStatement("kinds", COLUMNS, ("id",)))
        yield shop


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rows=st.lists(NULLABLE, min_size=1, max_size=5))
def test_values_of_all_kinds_come_back(
    table_of_all_kinds: ShopDatabase, database: Database, rows: list[dict[str, object]]
) -> None:
    numbered = [{"id": number, **row} for number, row in enumerate(rows)]
    inserted = run(table_of_all_kinds, Insert("kinds", tuple(numbered)))
    try:
        assert [dict(change.values) for change in inserted] == numbered
        assert {change.columns for change in inserted} == {COLUMNS}
        assert rows_now(database, "shop_of_all_kinds")["kinds"] == numbered
    finally:
        run(table_of_all_kinds, *(Delete("kinds", {"id": row["id"]}) for row in numbered))


def test_names_are_quoted(shop: ShopDatabase, database: Database, name: str) -> None:
    odd = "sel`ect %s%"
    changes = run(
        shop,
        CreateTableStatement(odd, (Column(odd, "int"), Column("from", "text")), (odd,)),
        Insert(odd, ({odd: 1},)),
        Update(odd, {odd: 1}, {"from": "'; DROP TABLE x; -- %s"}),
    )
    row = {odd: 1, "from": "'; DROP TABLE x; -- %s"}
    assert (changes[-1].table, changes[-1].values) == (odd, row)
    assert rows_now(database, name) == {odd: [row]}


def test_values_are_apart_from_the_text() -> None:
    rendered = sql(Insert("t", ({"a": 1}, {"b": "x"})))
    assert rendered.text == "INSERT INTO `t` (`a`, `b`) VALUES (%s, %s), (%s, %s)"
    assert rendered.values == (1, None, None, "x")


def test_other_databases_changes_are_left_out(shop: ShopDatabase, database: Database) -> None:
    with connect(database) as connection:
        other = ShopDatabase(database, connection, "shop_other")
        create = CreateTableStatement("t", (Column("id", "int"),), ("id",))
        shop.run(create)
        assert len(run(other, create, Insert("t", ({"id": 1},)))) == 1
    assert len(run(shop, Insert("t", ({"id": 2}, {"id": 3})))) == 2


def test_log_goes_on_in_the_next_file(tmp_path: Path) -> None:
    try:
        database = up_database(tmp_path)
        create = CreateTableStatement("t", (Column("id", "int"),), ("id",))
        with connect(database) as connection:
            shop = ShopDatabase(database, connection, "shop")
            shop.run(create)
            shop.run(Insert("t", ({"id": 1},)))
        down(tmp_path)
        database = up_database(tmp_path, port=database.port)
        with connect(database, "shop") as connection:
            connection.cursor().execute("INSERT INTO t VALUES (2)")
        changes = shop.new_changes()
    finally:
        down(tmp_path)
    assert [change.values["id"] for change in changes] == [1, 2]
    assert [change.log_file for change in changes] == ["mysql-bin.000001", "mysql-bin.000002"]


def test_places_are_compared_by_number() -> None:
    files = ["mysql-bin.000002", "mysql-bin.999999", "mysql-bin.1000000"]
    places = [LogPosition(file, position) for file in files for position in (4, 100)]
    assert all(earlier < later for earlier, later in pairwise(places))


def test_files_tell_the_tables_however_often_the_shop_opens(
    database: Database, name: str, tmp_path: Path
) -> None:
    reported: list[str] = []
    plan = ShopPlan(tmp_path / "landing", changes=400, seed=3)
    *_, written = run_on_database(plan, database.folder, reported.append, name=name)
    assert reported == ["Creating the shop's tables"]
    assert written.changes == written.kinds.total() >= 400
    assert written.backfilled == 50
    assert written.schema_changes > 0
    assert len([*plan.landing.rglob("*.avro")]) == written.files
    assert_files_add_up(plan.landing, rows_now(database, name))

    again = replace(plan, changes=300, seed=4)
    *_, written = run_on_database(again, database.folder, reported.append, name=name)
    assert reported[1:] == [
        "Removing the shop of the previous run",
        "Creating the shop's tables",
    ]
    assert (written.backfilled, 300 <= written.changes < 360) == (0, True)
    assert_files_add_up(plan.landing, rows_now(database, name))

    elsewhere = replace(plan, landing=tmp_path / "elsewhere", changes=10)
    *_, written = run_on_database(elsewhere, database.folder, name=name)
    assert (written.backfilled, 10 <= written.changes < 20) == (50, True)
    assert_files_add_up(elsewhere.landing, rows_now(database, name))


def test_interrupted_portion_is_told(
    database: Database, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_statement, left = ShopDatabase.run, iter(range(40))

    def run_or_interrupt(shop: ShopDatabase, statement: Statement) -> int:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return run_statement(shop, statement)

    monkeypatch.setattr(ShopDatabase, "run", run_or_interrupt)
    with pytest.raises(KeyboardInterrupt):
        next(run_on_database(ShopPlan(tmp_path, changes=None), database.folder, name=name))
    assert_files_add_up(tmp_path, rows_now(database, name))


def test_without_a_database_the_command_to_start_one_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        next(run_on_database(ShopPlan(tmp_path), tmp_path))
    assert caught.value.hint == "headgate up --database starts one"
