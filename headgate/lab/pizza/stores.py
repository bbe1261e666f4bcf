"""The stores of the chain: their demand by hour and day, their cooks and ovens."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from random import Random

SECOND = 1_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
"""Times are milliseconds since 1970-01-01 UTC, so that they add up exactly."""

_QUARTER = HOUR // 4
_QUARTERS = DAY // _QUARTER

# Few orders at night, a rush at noon and a larger one in the evening.
_ORDERS_BY_HOUR = (
    *(0.7, 0.4, 0.3, 0.2, 0.2, 0.2, 0.3, 0.5, 0.8, 1.0, 1.6, 3.5),
    *(7.0, 6.0, 3.0, 2.5, 3.0, 5.5, 9.0, 10.0, 7.5, 4.5, 2.5, 1.3),
)
_BY_WEEKDAY = (0.87, 0.9, 0.93, 0.98, 1.1, 1.16, 1.06)
"""Demand relative to an average day, from Monday on."""
_MONDAY = 3
"""Days from a Monday to 1970-01-01, a Thursday."""


def _quarters() -> tuple[float, ...]:
    """Return the share of a day's orders in each quarter of an hour, interpolated."""
    hours = len(_ORDERS_BY_HOUR)
    levels = []
    for quarter in range(_QUARTERS):
        # The level of an hour is that of its middle.
        before, part = divmod((quarter + 0.5) / 4 - 0.5, 1)
        left, right = (_ORDERS_BY_HOUR[int(before + step) % hours] for step in (0, 1))
        levels.append(left + (right - left) * part)
    return tuple(level / sum(levels) for level in levels)


_SHARES = _quarters()

_ORDERS_PER_COOK_HOUR = 60 / 5.2
"""Orders that a cook of average speed prepares in an hour."""
_PEAK_OF_TWO_OVENS = 50
"""Orders per hour; stores with more have three ovens."""
_RUSH_COOKS = 1.7
"""If more are needed, it is a rush, and stores do with few."""
_BAKED_MINUTES = 19.5
"""Minutes in the oven of all items of an average order together."""


@dataclass(frozen=True)
class Store:
    """A store: how many orders it gets, and with what it makes them."""

    number: int
    orders_per_day: float
    ovens: tuple[int, ...]
    """How many items fit into each oven; the largest comes first, and breaks first."""
    cooks: tuple[int, ...]
    """Number of cooks by hour of the day; the same on all days."""
    slowness: float
    """Preparation time relative to the average store."""

    def demand(self, time: int) -> float:
        """Return the expected number of orders per millisecond."""
        share = _SHARES[time % DAY // _QUARTER]
        return self.orders_per_day * share * _BY_WEEKDAY[(time // DAY + _MONDAY) % 7] / _QUARTER


def next_change(time: int) -> int:
    """Return when the demand next changes."""
    return (time // _QUARTER + 1) * _QUARTER


def make_store(seed: int, number: int) -> Store:
    """Return a store; it does not depend on how many others there are."""
    random = Random(f"{seed}/{number}/store")
    orders_per_day = random.uniform(200, 420)
    slowness = random.uniform(0.9, 1.12)
    peak = max(_SHARES) * 4 * orders_per_day
    # A weekday's peak just fits into the ovens, a Saturday's does not.
    half = ceil(peak * _BAKED_MINUTES / 60 * random.uniform(1.08, 1.22) / 2)
    small = (half // 2, half - half // 2)
    return Store(
        number,
        orders_per_day,
        (half, *small) if peak > _PEAK_OF_TWO_OVENS else (half, half),
        tuple(
            _cooks(orders_per_day * sum(_SHARES[4 * hour : 4 * hour + 4]), slowness, random)
            for hour in range(24)
        ),
        slowness,
    )


def _cooks(orders: float, slowness: float, random: Random) -> int:
    """Return the cooks for an hour: enough on most days, though not planned perfectly."""
    needed = orders * slowness / _ORDERS_PER_COOK_HOUR
    if needed < _RUSH_COOKS:
        return ceil(needed * 1.5)
    return round(needed * random.uniform(0.9, 1.1))
