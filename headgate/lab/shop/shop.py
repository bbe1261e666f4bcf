"""What can happen in a shop: orders, customers, products, vouchers and reviews come and go."""

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
    CreateTable,
    Delete,
    Insert,
    Row,
    SourceClock,
    Statement,
    Update,
)
from headgate.lab.shop.tables import FIRST_TABLES, WIDER_ORDERS, columns_after

Key = TypeVar("Key", int, str)


class KeyPool(Generic[Key]):
    """Picking and removing take the same time however many there are."""

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
_NO_VALUE = 0.1


def made_up(column: Column, random: Random, now: datetime) -> object:
    """Sometimes null; nothing longer or larger than the column can hold."""
    if random.random() < _NO_VALUE:
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
_KEPT_RIGHT = frozenset({"status", "total", "packed", "price", "quantity"})
_FIRST_LARGE_ORDER = 2**31
_FIRST_CUSTOMERS = 20
_FIRST_PRODUCTS = 30
_FEWEST = 10


@dataclass
class _Order:
    """What has to stay right about an order: its total is that of its lines 1, 2, 3, …"""

    status: int
    amounts: list[Decimal]


class Shop:
    """What the shop knows of itself; each thing that can happen is a generator of statements."""

    def __init__(self, random: Random, clock: SourceClock, keep: int) -> None:
        self.number = 0
        """How many statements there were."""
        self._random = random
        self._clock = clock
        self._keep = keep
        self._tables = {each.table: each for each in FIRST_TABLES}
        self._customers, self._products = KeyPool[int](), KeyPool[int]()
        self._orders, self._vouchers = KeyPool[int](), KeyPool[str]()
        self._reviews = KeyPool[int]()
        self._open_orders: dict[int, _Order] = {}
        self._next = {table: count(1) for table in ("customers", "products", "orders", "reviews")}
        self._gone: deque[int] = deque(maxlen=100)

    def open(self) -> Iterator[Statement]:
        yield from FIRST_TABLES
        yield self._more("customers", self._customers, _FIRST_CUSTOMERS)
        yield self._more("products", self._products, _FIRST_PRODUCTS)

    def alter(self, change: CreateTable | AlterTable) -> CreateTable | AlterTable:
        if isinstance(change, CreateTable):
            self._tables[change.table] = change
            return change
        table = self._tables[change.table]
        columns = columns_after(table.columns, change.change)
        self._tables[change.table] = replace(table, columns=columns)
        if change == WIDER_ORDERS:
            self._next["orders"] = count(_FIRST_LARGE_ORDER)
        return change

    def something(self) -> Iterator[Statement]:
        (happens,) = self._random.choices(
            (
                self._order,
                self._progress,
                self._take_a_line_out,
                self._cancel,
                self._customer,
                self._product,
                self._voucher,
                self._review,
                self._edit_something,
            ),
            (30, 30, 6, 4, 8, 5, 10, 6, 12),
        )
        return happens()

    def _order(self) -> Iterator[Statement]:
        if len(self._orders) >= self._keep:
            yield from self._cancel()
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

    def _progress(self) -> Iterator[Statement]:
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

    def _take_a_line_out(self) -> Iterator[Statement]:
        """The lines after it move up: each takes the key of the one before."""
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

    def _cancel(self) -> Iterator[Statement]:
        if not self._orders:
            return
        order = self._orders.pick(self._random)
        self._orders.remove(order)
        del self._open_orders[order]
        yield Delete("order_lines", {"order_id": order})
        yield Delete("orders", {"id": order})

    def _customer(self) -> Iterator[Statement]:
        """Comes, goes, or comes back under the old number."""
        if self._gone and self._random.random() < 0.3:
            back = self._gone.popleft()
            self._customers.add(back)
            yield Insert("customers", (self._row("customers", id=back),))
        elif len(self._customers) > _FEWEST and self._wants_fewer(self._customers, 0.3):
            gone = self._customers.pick(self._random)
            self._customers.remove(gone)
            self._gone.append(gone)
            yield Delete("customers", {"id": gone})
        else:
            yield self._more("customers", self._customers, self._random.randrange(1, 4))

    def _product(self) -> Iterator[Statement]:
        if len(self._products) > _FEWEST and self._wants_fewer(self._products, 0.3):
            product = self._products.pick(self._random)
            self._products.remove(product)
            yield Delete("products", {"id": product})
        elif self._random.random() < 0.5:
            yield self._more("products", self._products, self._random.randrange(1, 6))
        else:
            key = {"id": self._products.pick(self._random)}
            yield Update("products", key, {"price": price(self._random)})

    def _voucher(self) -> Iterator[Statement]:
        """Its code is its key, and codes are changed, swapped, and used again."""
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
        elif what < 0.8 and not self._wants_fewer(self._vouchers, 0):
            code = self._vouchers.pick(self._random)
            yield Delete("vouchers", {"code": code})
            yield Insert("vouchers", (self._new_voucher(code),))
        else:
            code = self._vouchers.pick(self._random)
            self._vouchers.remove(code)
            yield Update("vouchers", {"code": code}, {"used": True})
            yield Delete("vouchers", {"code": code})

    def _review(self) -> Iterator[Statement]:
        if "reviews" not in self._tables:
            return
        if self._reviews and self._wants_fewer(self._reviews, 0.2):
            review = self._reviews.pick(self._random)
            self._reviews.remove(review)
            yield Delete("reviews", {"id": review})
        else:
            yield self._more("reviews", self._reviews, 1)

    def _edit_something(self) -> Iterator[Statement]:
        """New values for some columns of one row; once in a while none of them is new."""
        table = self._random.choice(tuple(self._tables))
        key = self._some_key(table)
        free = [
            column
            for column in self._tables[table].columns
            if column.name not in key.keys() | _KEPT_RIGHT and not column.name.endswith("_id")
        ]
        if key and free:
            chosen = self._random.sample(free, min(len(free), self._random.randrange(1, 3)))
            values = {column.name: made_up(column, self._random, self._now) for column in chosen}
            yield Update(table, key, values)

    def _some_key(self, table: str) -> Row:
        """The key of a row that is there; nothing where there is none."""
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

    def _more(self, table: str, pool: KeyPool[int], amount: int) -> Insert:
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

    def _wants_fewer(self, pool: KeyPool[int] | KeyPool[str], share: float) -> bool:
        return len(pool) > self._keep or self._random.random() < share

    def _row(self, table: str, **given: object) -> Row:
        row = dict(given)
        for column in self._tables[table].columns:
            if column.name not in given:
                row[column.name] = made_up(column, self._random, self._now)
        return row

    @property
    def _now(self) -> datetime:
        return self._clock.at(self.number)
