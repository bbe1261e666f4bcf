from __future__ import annotations

from collections import defaultdict
from decimal import Decimal
from itertools import islice

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.lab.shop.simulate import DatabaseModel
from headgate.lab.shop.statement import (
    AddColumnStatement,
    AlterTable,
    CreateTableStatement,
    Delete,
    DropColumnStatement,
    Insert,
    Row,
    SourceClock,
    Statement,
    Update,
    WidenColumn,
)
from headgate.lab.shop.workload import OPENING, statements

_CLOCK = SourceClock()


def _some(count: int, seed: int = 0, evolve_every: int = 20) -> list[Statement]:
    return list(islice(statements(seed, evolve_every=evolve_every), count))


def test_same_seed_gives_the_same_statements() -> None:
    assert _some(500, seed=3) == _some(500, seed=3)
    assert _some(500, seed=3) != _some(500, seed=4)


def test_a_few_hundred_statements_have_every_kind_of_them() -> None:
    made = _some(300)
    altered = [each.change for each in made if isinstance(each, AlterTable)]
    assert {type(each) for each in made} == {
        CreateTableStatement,
        AlterTable,
        Insert,
        Update,
        Delete,
    }
    assert {type(each) for each in altered} == {
        AddColumnStatement,
        DropColumnStatement,
        WidenColumn,
    }
    assert [each.table for each in made[OPENING:] if isinstance(each, CreateTableStatement)] == [
        "reviews"
    ]


def test_opening_makes_tables_and_rows() -> None:
    *tables, customers, products = _some(OPENING)
    assert all(isinstance(each, CreateTableStatement) for each in tables)
    assert isinstance(customers, Insert)
    assert isinstance(products, Insert)


def test_name_of_a_column_is_never_used_again() -> None:
    used: set[tuple[str, str]] = set()
    for each in _some(4_000, evolve_every=1):
        if isinstance(each, CreateTableStatement):
            used |= {(each.table, column.name) for column in each.columns}
        elif isinstance(each, AlterTable) and isinstance(each.change, AddColumnStatement):
            name = (each.table, each.change.column.name)
            assert name not in used
            used.add(name)
    assert len(used) > 60


def test_orders_outgrow_an_int_only_when_their_columns_are_wide() -> None:
    kinds: dict[tuple[str, str], str] = {}
    large = 0
    for each in _some(2_000):
        if isinstance(each, CreateTableStatement):
            kinds |= {(each.table, column.name): column.kind for column in each.columns}
        elif isinstance(each, AlterTable) and isinstance(
            each.change, AddColumnStatement | WidenColumn
        ):
            kinds[each.table, each.change.column.name] = each.change.column.kind
        elif isinstance(each, Insert):
            for row in each.rows:
                for name, value in row.items():
                    if kinds[each.table, name] == "int" and value is not None:
                        assert isinstance(value, int)
                        assert abs(value) < 2**31
                    large += name == "order_id" and isinstance(value, int) and value >= 2**31
    assert large > 0


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 30))
def test_statements_can_be_run(seed: int, evolve_every: int) -> None:
    """Inserted keys are new; updated and deleted rows exist."""
    model = DatabaseModel()
    for number, each in enumerate(_some(600, seed, evolve_every)):
        if isinstance(each, Update | Delete):
            assert model.tables[each.table].find(each.key)
        model.apply(each, _CLOCK.at(number))


def test_tables_do_not_grow_without_an_end() -> None:
    model = DatabaseModel()
    for number, each in enumerate(islice(statements(keep=20), 6_000)):
        model.apply(each, _CLOCK.at(number))
    assert len(model.tables["orders"].rows) == 20
    assert max(len(table.rows) for table in model.tables.values()) < 100


def test_orders_and_their_lines_belong_together() -> None:
    """But for the one that is being worked on."""
    model = DatabaseModel()
    for number, each in enumerate(_some(3_000)):
        model.apply(each, _CLOCK.at(number))
    lines = defaultdict(list)
    for row in model.tables["order_lines"].rows:
        lines[row["order_id"]].append(row)
    orders = {row["id"]: row["total"] for row in model.tables["orders"].rows}
    wrong = [
        order
        for order in orders.keys() | lines.keys()
        if [row["line"] for row in lines[order]] != list(range(1, len(lines[order]) + 1))
        or orders.get(order) != sum(_amount(row) for row in lines[order])
    ]
    assert len(orders) > 200
    assert len(wrong) <= 1


def _amount(line: Row) -> Decimal:
    price, quantity = line["price"], line["quantity"]
    assert isinstance(price, Decimal)
    assert isinstance(quantity, int)
    return price * quantity


def test_many_statements_share_a_second() -> None:
    clock = SourceClock(statements_per_second=3)
    assert len({clock.at(number) for number in range(9)}) == 3
    assert clock.at(0) == clock.start
