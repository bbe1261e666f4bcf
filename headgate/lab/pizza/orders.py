"""Orders: what people order, when, and how long they are prepared to wait."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import log
from random import Random

from headgate.lab.pizza.stores import DAY, MINUTE, Store, next_change


@dataclass(frozen=True, slots=True)
class Product:
    """A product of the menu; `baking` is None if it needs no oven."""

    number: int
    category: str
    price: float
    preparation: float
    """Minutes of a cook for each."""
    baking: float | None
    """Minutes in the oven."""


def _products(
    first: int, category: str, prices: tuple[float, ...], preparation: float, baking: float | None
) -> list[Product]:
    return [
        Product(first + place, category, price, preparation, baking)
        for place, price in enumerate(prices)
    ]


MENU = (
    *_products(1, "pizza", (8.5, 9.0, 9.5, 10.5, 11.0, 11.5, 12.0, 13.5), 1.9, 8.0),
    *_products(21, "calzone", (10.0, 11.5), 2.4, 10.0),
    *_products(41, "wings", (6.0, 7.5), 0.9, 11.0),
    *_products(61, "salad", (5.5, 7.0, 8.0), 1.8, None),
    *_products(81, "dessert", (4.0, 4.5), 0.6, 5.0),
)
_POPULARITY = (14, 10, 9, 8, 7, 6, 5, 4, 5, 4, 7, 5, 5, 3, 2, 4, 2)
"""How often each product of the menu is chosen, relative to the others."""

_LINES = (50, 30, 15, 5)
"""Of a hundred orders, those with one line, with two, …"""
_QUANTITIES = (66, 24, 8, 2)
_FIXED_PREPARATION = 0.7
"""Minutes for any order."""
_COUPON_SHARE = 0.25
_COUPONS = range(1_000, 1_100)
_DISCOUNT = 0.1
_CHANNELS = ("app", "web", "phone", "counter")
_CHANNEL_SHARES = (45, 30, 15, 10)

_DAY_SPREAD = 0.14
"""How much a store's demand differs between the same weekdays."""

_SECOND_THOUGHTS = 0.01
"""Share of people who cancel within minutes, however short the wait."""
_MEDIAN_PATIENCE = 48.0
_PATIENCE_SPREAD = 0.45


@dataclass(frozen=True, slots=True)
class OrderLine:
    """A line of an order."""

    product_id: int
    category: str
    quantity: int
    unit_price: float
    net_price: float


@dataclass(frozen=True, slots=True)
class Order:
    """An order and the work in it; durations in milliseconds."""

    number: int
    at: int
    lines: tuple[OrderLine, ...]
    coupon: int
    """0 for none."""
    channel: str
    preparation: int
    """By a cook of average speed."""
    baking: tuple[int, ...]
    """Time in the oven of each item that is baked."""
    patience: int
    """How long the customer waits for the preparation to begin before cancelling."""


def orders(seed: int, store: Store, start: int) -> Iterator[Order]:
    """Yield the orders of a store from `start` on, without end.

    Nothing that happens in the kitchen changes them: kitchens can be compared on the same orders.
    """
    random = Random(f"{seed}/{store.number}/orders")
    for number, time in enumerate(_times(seed, store, start, random), start=1):
        yield _order(number, time, random)


def typical_order(time: int) -> Order:
    """Return an order of two pizzas by someone with unlimited patience."""
    pizza = MENU[0]
    assert pizza.baking is not None
    line = OrderLine(pizza.number, pizza.category, 2, pizza.price, 2 * pizza.price)
    preparation = round((_FIXED_PREPARATION + 2 * pizza.preparation) * MINUTE)
    baking = (round(pizza.baking * MINUTE),) * 2
    return Order(0, time, (line,), 0, _CHANNELS[0], preparation, baking, 365 * DAY)


def _times(seed: int, store: Store, start: int, random: Random) -> Iterator[int]:
    """Yield the times of a Poisson process whose rate changes over the day and from day to day."""
    time, day, busyness = start, -1, 1.0
    left = random.expovariate(1)
    while True:
        if time // DAY != day:
            day = time // DAY
            busyness = Random(f"{seed}/{store.number}/{day}").lognormvariate(0, _DAY_SPREAD)
        change = next_change(time)
        rate = store.demand(time) * busyness
        if left > rate * (change - time):
            left -= rate * (change - time)
            time = change
        else:
            time += round(left / rate)
            yield time
            left = random.expovariate(1)


def _order(number: int, time: int, random: Random) -> Order:
    coupon = random.choice(_COUPONS) if random.random() < _COUPON_SHARE else 0
    lines = []
    preparation = _FIXED_PREPARATION
    baking: list[int] = []
    (line_count,) = random.choices(range(1, len(_LINES) + 1), _LINES)
    for product in random.choices(MENU, _POPULARITY, k=line_count):
        (quantity,) = random.choices(range(1, len(_QUANTITIES) + 1), _QUANTITIES)
        price = quantity * product.price * (1 - _DISCOUNT if coupon else 1)
        lines.append(
            OrderLine(product.number, product.category, quantity, product.price, round(price, 2))
        )
        preparation += quantity * product.preparation
        if product.baking is not None:
            minutes = product.baking * random.uniform(0.9, 1.15)
            baking += [round(minutes * MINUTE)] * quantity
    (channel,) = random.choices(_CHANNELS, _CHANNEL_SHARES)
    return Order(
        number,
        time,
        tuple(lines),
        coupon,
        channel,
        round(preparation * random.lognormvariate(0, 0.15) * MINUTE),
        tuple(baking),
        _patience(random),
    )


def _patience(random: Random) -> int:
    if random.random() < _SECOND_THOUGHTS:
        return round(random.uniform(0.2, 4) * MINUTE)
    return round(random.lognormvariate(log(_MEDIAN_PATIENCE), _PATIENCE_SPREAD) * MINUTE)
