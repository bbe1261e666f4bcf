"""How the place of a change among all changes of its table is written.

The parts of an order stand in the sequence in which they count, joined by dots. Every part has a
width that never varies, and all of it is ASCII, so that comparing two texts byte by byte compares
the changes, wherever it is done: in Arrow, in Spark, in DataFusion, in Python.

    row of a backfill   0.<source time>.<uuid>
    MySQL, by log       1.<epoch>.<log file>.<log position>.<kind>.<uuid>
    MySQL, by GTID      1.<epoch>.<GTID number>.<log file>.<log position>.<kind>.<uuid>
    Oracle              1.<epoch>.<scn>.<rs_id>.<ssn>.<kind>.<uuid>
    PostgreSQL          1.<epoch>.<lsn>.<kind>.<uuid>
    SQL Server          1.<epoch>.<lsn>.<kind>.<uuid>

0 or 1        A backfill reads rows as they are, not as they were changed: any change is above it.
epoch         4 digits: the place of the change's lineage in the list of lineages. Positions of two
              lineages cannot be compared; the list says which one came first. It may only grow at
              its end, for orders are stored. One lineage has one layout, hence layouts never meet.
source time   20 digits: microseconds since 1970.
numbers       20 digits, which is what an unsigned number of 64 bits needs. Log files count by
              number: `mysql-bin.1000000` comes after `mysql-bin.999999`.
rs_id         Three hexadecimal numbers of 8 digits. Where it or the ssn is missing, dashes stand
              in its place: they are below all digits.
lsn           Two hexadecimal numbers of 8 digits; of SQL Server, a third of 4 digits.
kind          1 digit, see tie_break.py.
uuid          Last, since its length may vary; at most 64 letters, digits, `-` and `_`.

A part that cannot be known makes the whole order unknown: nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import UsageError

BACKFILL = "0"
CHANGE = "1"
HIGHEST = "~"
"""Stands for the rest of an order: above everything that can follow."""

LONGEST_POSITION = 255
"""Bytes; what is longer is no position. Limits in patterns would make them slow to compile."""

NUMBER_WIDTH = 20
HEX_WIDTH = 8


def hex_number(name: str) -> str:
    """A pattern of a hexadecimal number without the zeros before it, if it fits."""
    return rf"0*(?P<{name}>[0-9A-Fa-f]{{1,{HEX_WIDTH}}})"


def number(name: str) -> str:
    """A pattern of a number without the zeros before it, if it fits."""
    return rf"0*(?P<{name}>[0-9]{{1,{NUMBER_WIDTH}}})"


@dataclass(frozen=True)
class Part:
    """One part of the orders of some changes, null where it is unknown, and why it would be."""

    texts: pa.Array
    unknown: str | pa.Array


def joined(*texts: pa.Array | str) -> pa.Array:
    """Parts as orders: null where any of them is."""
    return pc.binary_join_element_wise(*texts, ".")


def padded(texts: pa.Array) -> pa.Array:
    """Numbers in digits, all equally long; null for what is none or does not fit."""
    digits = pc.ascii_ltrim(texts, "0")
    fits = pc.less_equal(pc.binary_length(digits), NUMBER_WIDTH)
    usable = pc.and_(pc.ascii_is_decimal(texts), fits)
    return pc.ascii_lpad(pc.if_else(usable, digits, None), NUMBER_WIDTH, "0")


def padded_hex(texts: pa.Array) -> pa.Array:
    """Hexadecimal numbers that are known to fit, all equally long and in capitals."""
    return pc.ascii_lpad(pc.ascii_upper(texts), HEX_WIDTH, "0")


def extracted(texts: pa.Array, pattern: str) -> dict[str, pa.Array]:
    """The named groups of a pattern that has to match the whole text; null where it does not."""
    short = pc.less_equal(pc.binary_length(texts), LONGEST_POSITION)
    groups = pc.extract_regex(pc.if_else(short, texts, None), rf"\A(?:{pattern})\z")
    return dict(zip(groups.type.names, groups.flatten(), strict=True))


@dataclass(frozen=True)
class Positions:
    """Of some changes: the lineage in which each position counts, and the position's parts."""

    lineages: pa.Array
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class TypedPosition:
    """A position that a person gave: its lineage, and the beginning of all orders there."""

    lineage: str
    text: str


_WIDTH = 4


def epochs(lineages: Sequence[str]) -> dict[str, str]:
    """Each lineage as the part of an order."""
    if len(set(lineages)) < len(lineages) or len(lineages) > 10**_WIDTH:
        raise UsageError(
            "bad-argument",
            "the list of lineages is too long or has a duplicate",
            hint="List each lineage once, where it first took over.",
        )
    return {lineage: f"{place:0{_WIDTH}}" for place, lineage in enumerate(lineages)}


def epoch_part(lineages: pa.Array, known: dict[str, str]) -> Part:
    """The epoch of each change, given its lineage."""
    names, texts = pa.array(known.keys(), pa.string()), pa.array(known.values(), pa.string())
    return Part(
        texts.take(pc.index_in(lineages, value_set=names, skip_nulls=True)),
        pc.binary_join_element_wise("the lineage ", lineages, " is not in the list", ""),
    )


_RANKS = {"UPDATE-DELETE": "0", "INSERT": "1", "UPDATE": "2", "UPDATE-INSERT": "2", "DELETE": "3"}
_KINDS = pa.array(_RANKS.keys(), pa.string())
_DIGITS = pa.array(_RANKS.values(), pa.string())
_LONGEST_UUID = 64
_PLAIN = r"\A[0-9A-Za-z_-]*\z"


def kind_part(changes: pa.RecordBatch) -> Part:
    """The digit of each kind of change."""
    places = pc.index_in(changes.column("_change_type"), value_set=_KINDS)
    return Part(_DIGITS.take(places), f"the change type is not one of {', '.join(_RANKS)}")


def uuid_part(changes: pa.RecordBatch) -> Part:
    """The uuid; a missing one is below all others."""
    uuids = changes.column("_uuid").fill_null("")
    short = pc.less_equal(pc.binary_length(uuids), _LONGEST_UUID)
    plain = pc.match_substring_regex(uuids, _PLAIN)
    usable = pc.and_(short, plain)
    return Part(pc.if_else(usable, uuids, None), "the uuid is too long or has odd characters")
