"""A shop's days, statement by statement, without an end: the same seed, the same statements."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from headgate.lab.shop.shop import Shop
from headgate.lab.shop.statement import SourceClock, Statement
from headgate.lab.shop.tables import FIRST_TABLES, evolution

OPENING = len(FIRST_TABLES) + 2
"""So many statements are made before the shop opens: its tables, and the first of its rows."""


def statements(
    seed: int = 0,
    clock: SourceClock | None = None,
    evolve_every: int = 20,
    keep: int = 5_000,
) -> Iterator[Statement]:
    """All that happens in the shop.

    The tables change after `evolve_every` statements, then after twice as many more, then three
    times: many kinds of change early, and a shop that settles. No table has many more rows than
    `keep` orders bring.
    """
    shop = Shop(Random(seed), clock or SourceClock(), keep)
    changes = evolution(Random(seed))
    evolved, next_evolution = 1, OPENING + evolve_every
    for statement in shop.open():
        yield statement
        shop.number += 1
    while True:
        for statement in shop.something():
            yield statement
            shop.number += 1
        if shop.number >= next_evolution:
            yield shop.alter(next(changes))
            shop.number += 1
            evolved += 1
            next_evolution += evolved * evolve_every
