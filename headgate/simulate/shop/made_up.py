"""Values that a shop could have in its columns."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from random import Random

from headgate.simulate.shop.change import Column

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
