"""Generate the shop's workload: an endless stream of statements, the same for the same seed."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import count
from random import Random
from typing import Generic, TypeVar

from headgate.lab.shop.statement import (
    AlterTable,
    Column,
    CreateTableStatement,
    Delete,
    Insert,
    Row,
    SourceClock,
    Statement,
    Update,
)
from headgate.lab.shop.tables import FIRST_TABLES, WIDER_ORDERS, columns_after, evolution

Key = TypeVar("Key", int, str)


class KeyPool(Generic[Key]):
    """A set of keys with constant-time random choice and removal."""

    def __init__(self) -> None:
        self._keys: list[Key] = []
        self._places: dict[Key, int] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: Key) -> bool:
        return key in self._places

    def add(self, key: Key) -> None:
        self._places[key] = len(self._keys)
        self._keys.append(key)

    def remove(self, key: Key) -> None:
        last = self._keys.pop()
        place = self._places.pop(key)
        if last != key:
            self._keys[place] = last
            self._places[last] = place

    def pick(self, random: Random) -> Key:
        return self._keys[random.randrange(len(self._keys))]


_FIRST_NAMES = "Ada Björn Chloé Dmitri Esra Farid Grace Hana Ivo Jürgen Kofi Lena Mei Noor Olu"
_LAST_NAMES = "Ács Brandt Costa Dubois Eriksen Fischer Gül Hansen Ito Jansen Kovač Li Núñez"
_CITIES = "Aarhus Bergen Córdoba Delft Evora Fès Graz Haifa İzmir Jena Kyōto Łódź Mainz"
_THINGS = "Bowl Chair Desk Fork Globe Hammer Jar Kettle Lamp Mirror Plate Rug Spoon Teapot"
_COLOURS = "amber blue crimson dark-green ecru grey ivory lilac mauve ochre"
_REMARKS = (
    "Ring twice.",
    "Leave it with the neighbours, please.",
    "A gift: no bill in the parcel!",
    'He said "tomorrow"\nand meant next week.',
    "☂ keep dry",
    "",
)
_NULL_SHARE = 0.1


def random_value(column: Column, random: Random, now: datetime) -> object:
    """Return a random value that fits the column; sometimes null."""
    if random.random() < _NULL_SHARE:
        return None
    named = _BY_NAME.get(column.name)
    return named(random) if named else _of_kind(column, random, now)


def price(random: Random) -> Decimal:
    return Decimal(random.randrange(50, 20_000)).scaleb(-2)


def _of_kind(column: Column, random: Random, now: datetime) -> object:
    match column.kind:
        case "int":
            return random.randrange(-10, 1_000)
        case "bigint":
            return random.randrange(2**33)
        case "decimal":
            digits = min(column.precision or 10, 7)
            return Decimal(random.randrange(10**digits)).scaleb(-(column.scale or 0))
        case "varchar":
            return _one(_COLOURS, random)
        case "text":
            return random.choice(_REMARKS)
        case "timestamp":
            return now - timedelta(microseconds=random.randrange(10**9))
        case "date":
            return date(1950, 1, 1) + timedelta(days=random.randrange(30_000))
        case "boolean":
            return random.random() < 0.5
        case "double":
            return random.randrange(10**6) / 1_000
        case "json":
            return json.dumps({"colour": _one(_COLOURS, random), "sizes": [random.randrange(50)]})


def _one(words: str, random: Random) -> str:
    return random.choice(words.split())


def _full_name(random: Random) -> str:
    return f"{_one(_FIRST_NAMES, random)} {_one(_LAST_NAMES, random)}"


_BY_NAME: dict[str, Callable[[Random], object]] = {
    "full_name": _full_name,
    "email": lambda random: f"customer{random.randrange(10**6)}@shop.example",
    "city": lambda random: _one(_CITIES, random),
    "phone": lambda random: f"+00 {random.randrange(10**9):09d}",
    "title": lambda random: f"{_one(_COLOURS, random).capitalize()} {_one(_THINGS, random)}",
    "percent": lambda random: random.choice((5, 10, 15, 20, 50)),
    "stars": lambda random: random.randrange(1, 6),
}

_STATUSES = ("placed", "paid", "packed", "shipped", "delivered")
_DERIVED = frozenset({"status", "total", "packed", "price", "quantity"})
_FIRST_LARGE_ORDER = 2**31
_FIRST_CUSTOMERS = 20
_FIRST_PRODUCTS = 30
_MIN_ROWS = 10


@dataclass
class _Order:
    """Invariant of an order: its total is the sum of its lines, numbered 1, 2, 3, …"""

    status: int
    amounts: list[Decimal]


class Shop:
    """State of the shop; each operation is a generator of statements."""

    def __init__(self, random: Random, clock: SourceClock, keep: int) -> None:
        self.number = 0
        """Number of statements so far."""
        self._random = random
        self._clock = clock
        self._keep = keep
        self._tables = {each.table: each for each in FIRST_TABLES}
        self._customers, self._products = KeyPool[int](), KeyPool[int]()
        self._orders, self._vouchers = KeyPool[int](), KeyPool[str]()
        self._reviews = KeyPool[int]()
        self._open_orders: dict[int, _Order] = {}
        self._next = {table: count(1) for table in ("customers", "products", "orders", "reviews")}
        self._deleted_customers: deque[int] = deque(maxlen=100)

    def open(self) -> Iterator[Statement]:
        yield from FIRST_TABLES
        yield self._insert("customers", self._customers, _FIRST_CUSTOMERS)
        yield self._insert("products", self._products, _FIRST_PRODUCTS)

    def alter(self, change: CreateTableStatement | AlterTable) -> CreateTableStatement | AlterTable:
        if isinstance(change, CreateTableStatement):
            self._tables[change.table] = change
            return change
        table = self._tables[change.table]
        columns = columns_after(table.columns, change.change)
        self._tables[change.table] = replace(table, columns=columns)
        if change == WIDER_ORDERS:
            self._next["orders"] = count(_FIRST_LARGE_ORDER)
        return change

    def next_operation(self) -> Iterator[Statement]:
        (operation,) = self._random.choices(
            (
                self._place_order,
                self._advance_order,
                self._remove_order_line,
                self._cancel_order,
                self._change_customers,
                self._change_products,
                self._change_vouchers,
                self._change_reviews,
                self._edit_row,
            ),
            (30, 30, 6, 4, 8, 5, 10, 6, 12),
        )
        return operation()

    def _place_order(self) -> Iterator[Statement]:
        if len(self._orders) >= self._keep:
            yield from self._cancel_order()
        order = next(self._next["orders"])
        placed = self._row(
            "orders",
            id=order,
            customer_id=self._customers.pick(self._random),
            status=_STATUSES[0],
            total=Decimal("0.00"),
            placed_at=self._now,
        )
        yield Insert("orders", (placed,))
        lines, amounts = [], []
        for line in range(1, self._random.randrange(2, 6)):
            cost, quantity = price(self._random), self._random.randrange(1, 5)
            product = self._products.pick(self._random)
            values = {"product_id": product, "quantity": quantity, "price": cost, "packed": False}
            lines.append(self._row("order_lines", order_id=order, line=line, **values))
            amounts.append(cost * quantity)
        yield Insert("order_lines", tuple(lines))
        self._orders.add(order)
        self._open_orders[order] = _Order(0, amounts)
        yield Update("orders", {"id": order}, {"total": sum(amounts)})

    def _advance_order(self) -> Iterator[Statement]:
        if not self._orders:
            return
        number = self._orders.pick(self._random)
        order = self._open_orders[number]
        for _ in range(self._random.randrange(1, 4)):
            if order.status + 1 < len(_STATUSES):
                order.status += 1
                status = _STATUSES[order.status]
                yield Update("orders", {"id": number}, {"status": status})
                if status == "packed":
                    yield Update("order_lines", {"order_id": number}, {"packed": True})

    def _remove_order_line(self) -> Iterator[Statement]:
        """Remove a line; each later line takes the key of the line before it."""
        if not self._orders:
            return
        number = self._orders.pick(self._random)
        order = self._open_orders[number]
        if len(order.amounts) < 2:
            return
        line = self._random.randrange(1, len(order.amounts) + 1)
        del order.amounts[line - 1]
        yield Delete("order_lines", {"order_id": number, "line": line})
        for after in range(line, len(order.amounts) + 1):
            key = {"order_id": number, "line": after + 1}
            yield Update("order_lines", key, {"line": after})
        yield Update("orders", {"id": number}, {"total": sum(order.amounts)})

    def _cancel_order(self) -> Iterator[Statement]:
        if not self._orders:
            return
        order = self._orders.pick(self._random)
        self._orders.remove(order)
        del self._open_orders[order]
        yield Delete("order_lines", {"order_id": order})
        yield Delete("orders", {"id": order})

    def _change_customers(self) -> Iterator[Statement]:
        """Add, remove, or re-add a customer with its old key."""
        if self._deleted_customers and self._random.random() < 0.3:
            back = self._deleted_customers.popleft()
            self._customers.add(back)
            yield Insert("customers", (self._row("customers", id=back),))
        elif len(self._customers) > _MIN_ROWS and self._should_delete(self._customers, 0.3):
            deleted = self._customers.pick(self._random)
            self._customers.remove(deleted)
            self._deleted_customers.append(deleted)
            yield Delete("customers", {"id": deleted})
        else:
            yield self._insert("customers", self._customers, self._random.randrange(1, 4))

    def _change_products(self) -> Iterator[Statement]:
        if len(self._products) > _MIN_ROWS and self._should_delete(self._products, 0.3):
            product = self._products.pick(self._random)
            self._products.remove(product)
            yield Delete("products", {"id": product})
        elif self._random.random() < 0.5:
            yield self._insert("products", self._products, self._random.randrange(1, 6))
        else:
            key = {"id": self._products.pick(self._random)}
            yield Update("products", key, {"price": price(self._random)})

    def _change_vouchers(self) -> Iterator[Statement]:
        """Change vouchers; codes are primary keys that get changed, swapped and reused."""
        what = self._random.random()
        if len(self._vouchers) < 3 or what < 0.4:
            yield Insert("vouchers", (self._new_voucher(self._new_code()),))
        elif what < 0.6:
            old, new = self._vouchers.pick(self._random), self._new_code()
            self._vouchers.remove(old)
            yield Update("vouchers", {"code": old}, {"code": new})
        elif what < 0.7:
            one, other = self._vouchers.pick(self._random), self._vouchers.pick(self._random)
            if one != other:
                yield Update("vouchers", {"code": one}, {"code": "SWAPPED"})
                yield Update("vouchers", {"code": other}, {"code": one})
                yield Update("vouchers", {"code": "SWAPPED"}, {"code": other})
        elif what < 0.8 and not self._should_delete(self._vouchers, 0):
            code = self._vouchers.pick(self._random)
            yield Delete("vouchers", {"code": code})
            yield Insert("vouchers", (self._new_voucher(code),))
        else:
            code = self._vouchers.pick(self._random)
            self._vouchers.remove(code)
            yield Update("vouchers", {"code": code}, {"used": True})
            yield Delete("vouchers", {"code": code})

    def _change_reviews(self) -> Iterator[Statement]:
        if "reviews" not in self._tables:
            return
        if self._reviews and self._should_delete(self._reviews, 0.2):
            review = self._reviews.pick(self._random)
            self._reviews.remove(review)
            yield Delete("reviews", {"id": review})
        else:
            yield self._insert("reviews", self._reviews, 1)

    def _edit_row(self) -> Iterator[Statement]:
        """Update some columns of a row; sometimes to the values they already have."""
        table = self._random.choice(tuple(self._tables))
        key = self._random_key(table)
        free = [
            column
            for column in self._tables[table].columns
            if column.name not in key.keys() | _DERIVED and not column.name.endswith("_id")
        ]
        if key and free:
            chosen = self._random.sample(free, min(len(free), self._random.randrange(1, 3)))
            values = {
                column.name: random_value(column, self._random, self._now) for column in chosen
            }
            yield Update(table, key, values)

    def _random_key(self, table: str) -> Row:
        """Return the key of an existing row; empty if the table has no rows."""
        match table:
            case "order_lines" if self._orders:
                order = self._orders.pick(self._random)
                lines = len(self._open_orders[order].amounts)
                return {"order_id": order, "line": self._random.randrange(lines) + 1}
            case "vouchers" if self._vouchers:
                return {"code": self._vouchers.pick(self._random)}
            case "orders" if self._orders:
                return {"id": self._orders.pick(self._random)}
            case "reviews" if self._reviews:
                return {"id": self._reviews.pick(self._random)}
            case "customers":
                return {"id": self._customers.pick(self._random)}
            case "products":
                return {"id": self._products.pick(self._random)}
        return {}

    def _insert(self, table: str, pool: KeyPool[int], amount: int) -> Insert:
        rows = []
        for _ in range(amount):
            number = next(self._next[table])
            pool.add(number)
            given = {"product_id": self._products.pick(self._random)} if table == "reviews" else {}
            rows.append(self._row(table, id=number, **given))
        return Insert(table, tuple(rows))

    def _new_code(self) -> str:
        while (code := f"CODE-{self._random.randrange(10**6):06d}") in self._vouchers:
            pass
        self._vouchers.add(code)
        return code

    def _new_voucher(self, code: str) -> Row:
        customer = self._customers.pick(self._random)
        return self._row("vouchers", code=code, customer_id=customer, used=False)

    def _should_delete(self, pool: KeyPool[int] | KeyPool[str], share: float) -> bool:
        return len(pool) > self._keep or self._random.random() < share

    def _row(self, table: str, **given: object) -> Row:
        row = dict(given)
        for column in self._tables[table].columns:
            if column.name not in given:
                row[column.name] = random_value(column, self._random, self._now)
        return row

    @property
    def _now(self) -> datetime:
        return self._clock.at(self.number)


OPENING = len(FIRST_TABLES) + 2
"""Number of statements that create the first tables and rows."""


def statements(
    seed: int = 0,
    clock: SourceClock | None = None,
    evolve_every: int = 20,
    keep: int = 5_000,
) -> Iterator[Statement]:
    """Yield the statements of the workload.

    Schema changes come after `evolve_every` statements, then after twice as many more, then three
    times as many: frequent at first, rarer later. `keep` limits the number of orders, and so the
    size of every table.
    """
    shop = Shop(Random(seed), clock or SourceClock(), keep)
    changes = evolution(Random(seed))
    evolved, next_evolution = 1, OPENING + evolve_every
    for statement in shop.open():
        yield statement
        shop.number += 1
    while True:
        for statement in shop.next_operation():
            yield statement
            shop.number += 1
        if shop.number >= next_evolution:
            yield shop.alter(next(changes))
            shop.number += 1
            evolved += 1
            next_evolution += evolved * evolve_every
