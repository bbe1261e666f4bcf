"""The shop's first tables, and the schema changes that follow."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from random import Random

from headgate.lab.shop.statement import (
    AddColumnStatement,
    AlterTable,
    Column,
    CreateTableStatement,
    DropColumnStatement,
    WidenColumn,
)

_EXTRA_KINDS = (
    Column("", "int"),
    Column("", "varchar", length=40),
    Column("", "decimal", precision=10, scale=2),
    Column("", "timestamp"),
    Column("", "double"),
    Column("", "boolean"),
    Column("", "date"),
    Column("", "json"),
    Column("", "text"),
)
_MAX_EXTRAS = 8

FIRST_TABLES = (
    CreateTableStatement(
        "customers",
        (
            Column("id", "int"),
            Column("full_name", "varchar", length=80),
            Column("email", "varchar", length=120),
            Column("city", "varchar", length=60),
            Column("born", "date"),
            Column("newsletter", "boolean"),
            Column("points", "int"),
            Column("created_at", "timestamp"),
        ),
        ("id",),
    ),
    CreateTableStatement(
        "products",
        (
            Column("id", "int"),
            Column("title", "varchar", length=80),
            Column("price", "decimal", precision=10, scale=2),
            Column("stock", "int"),
            Column("weight", "double"),
            Column("attributes", "json"),
        ),
        ("id",),
    ),
    CreateTableStatement(
        "orders",
        (
            Column("id", "int"),
            Column("customer_id", "int"),
            Column("status", "varchar", length=16),
            Column("total", "decimal", precision=12, scale=2),
            Column("placed_at", "timestamp"),
            Column("note", "text"),
        ),
        ("id",),
    ),
    CreateTableStatement(
        "order_lines",
        (
            Column("order_id", "int"),
            Column("line", "int"),
            Column("product_id", "int"),
            Column("quantity", "int"),
            Column("price", "decimal", precision=10, scale=2),
            Column("packed", "boolean"),
        ),
        ("order_id", "line"),
    ),
    CreateTableStatement(
        "vouchers",
        (
            Column("code", "varchar", length=20),
            Column("customer_id", "int"),
            Column("percent", "int"),
            Column("valid_until", "date"),
            Column("used", "boolean"),
        ),
        ("code",),
    ),
)

_REVIEWS = CreateTableStatement(
    "reviews",
    (
        Column("id", "int"),
        Column("product_id", "int"),
        Column("stars", "int"),
        Column("review", "text"),
        Column("written_at", "timestamp"),
    ),
    ("id",),
)

WIDER_ORDERS = AlterTable("orders", WidenColumn(Column("id", "bigint")))
"""After this change, order ids exceed the range of an int."""

_PLANNED: tuple[CreateTableStatement | AlterTable, ...] = (
    AlterTable("customers", AddColumnStatement(Column("phone", "varchar", length=30))),
    AlterTable("products", WidenColumn(Column("stock", "bigint"))),
    _REVIEWS,
    AlterTable("customers", DropColumnStatement("newsletter")),
    AlterTable("orders", AddColumnStatement(Column("shipped_at", "timestamp"))),
    AlterTable("order_lines", AddColumnStatement(Column("gift", "boolean"))),
    AlterTable("order_lines", WidenColumn(Column("order_id", "bigint"))),
    WIDER_ORDERS,
    AlterTable("products", DropColumnStatement("weight")),
    AlterTable("vouchers", AddColumnStatement(Column("minimum", "decimal", precision=10, scale=2))),
    AlterTable("customers", WidenColumn(Column("points", "bigint"))),
    AlterTable("orders", AddColumnStatement(Column("extras", "json"))),
    AlterTable("customers", WidenColumn(Column("full_name", "varchar", length=160))),
    AlterTable("orders", DropColumnStatement("note")),
    AlterTable("products", AddColumnStatement(Column("rating", "double"))),
    AlterTable("reviews", AddColumnStatement(Column("answered_on", "date"))),
)


def evolution(random: Random) -> Iterator[CreateTableStatement | AlterTable]:
    """Yield the planned changes, then endless random ones: add, widen and drop columns."""
    yield from _PLANNED
    tables = [each.table for each in (*FIRST_TABLES, _REVIEWS)]
    extras: deque[tuple[str, Column]] = deque()
    for number in count(1):
        kind = random.choice(_EXTRA_KINDS)
        table, column = random.choice(tables), replace(kind, name=f"extra_{number}")
        yield AlterTable(table, AddColumnStatement(column))
        extras.append((table, column))
        table, column = extras[len(extras) // 2]
        if column.kind == "int":
            column = replace(column, kind="bigint")
            extras[len(extras) // 2] = table, column
            yield AlterTable(table, WidenColumn(column))
        if len(extras) > _MAX_EXTRAS:
            table, column = extras.popleft()
            yield AlterTable(table, DropColumnStatement(column.name))


def columns_after(
    columns: tuple[Column, ...], change: AddColumnStatement | DropColumnStatement | WidenColumn
) -> tuple[Column, ...]:
    """Return a table's columns after a change; a new column comes last."""
    match change:
        case AddColumnStatement(column):
            return (*columns, column)
        case DropColumnStatement(name):
            return tuple(each for each in columns if each.name != name)
        case WidenColumn(column):
            return tuple(column if each.name == column.name else each for each in columns)
