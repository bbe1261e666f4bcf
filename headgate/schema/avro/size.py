"""How many values a payload can become.

A null takes a byte in Avro and, in Arrow, a place in each column of the record that is not there:
an array of such nulls is larger than its bytes by as much as the record is wide.
"""

from __future__ import annotations

from headgate.schema.avro.columns import NULL
from headgate.schema.avro.kinds import Array, Map, Record, Type, Union, fewest_bytes


def places(kind: Type) -> int:
    """The places that one value of an expanded type has in columns, be it null."""
    match kind:
        case Record(fields=fields):
            return 1 + sum(places(one.type) for one in fields)
        case Union(branches):
            return 1 + sum(places(one) for one in branches if one != NULL)
        case _:
            return 1


def places_per_byte(kind: Type) -> float:
    """No byte of a payload becomes more places than this in arrays and maps."""
    match kind:
        case Array(items):
            return places(items) / fewest_bytes(items, {}) + places_per_byte(items)
        case Map(values):
            entry = (1 + places(values)) / (1 + fewest_bytes(values, {}))
            return entry + places_per_byte(values)
        case Record(fields=fields):
            return max((places_per_byte(one.type) for one in fields), default=0.0)
        case Union(branches):
            return max(places_per_byte(one) for one in branches)
        case _:
            return 0.0
