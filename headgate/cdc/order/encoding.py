"""The encoding of orders, which sort changes of a table by comparing text.

The parts of an order are joined by dots, the most significant first. Every part has a fixed
width and is ASCII, so that comparing two orders byte by byte compares the changes, wherever it is
done: in Arrow, Spark, DataFusion or Python.

    backfill            0.<source time>.<uuid>
    MySQL, by log       1.<epoch>.<log file>.<log position>.<change type>.<uuid>
    MySQL, by GTID      1.<epoch>.<GTID number>.<log file>.<log position>.<change type>.<uuid>
    Oracle              1.<epoch>.<scn>.<rs_id>.<ssn>.<change type>.<uuid>
    PostgreSQL          1.<epoch>.<lsn>.<change type>.<uuid>
    SQL Server          1.<epoch>.<lsn>.<change type>.<uuid>

0 or 1        A backfill reads rows in their current state, so that any change sorts above it.
epoch         4 digits: the index of the change's lineage in the list of lineages. Positions of two
              lineages cannot be compared; the list says which one came first. The list only grows
              at its end, because orders are stored. A lineage has one layout, so that orders of
              different layouts are never compared beyond the epoch.
source time   20 digits: microseconds since 1970.
numbers       20 digits, enough for an unsigned 64-bit integer. Log files are compared by number:
              `mysql-bin.1000000` sorts above `mysql-bin.999999`.
rs_id         Three hexadecimal numbers of 8 digits. If it or the ssn is missing, it is written as
              dashes, which sort below all digits.
lsn           Two hexadecimal numbers of 8 digits; for SQL Server, a third of 4 digits.
change type   1 digit: the rank among changes at the same position.
uuid          Last, because its length varies; at most 64 letters, digits, `-` and `_`.

A missing part makes the whole order unknown: nothing is guessed.
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
"""A suffix that sorts above every continuation of an order."""

NUMBER_WIDTH = 20
HEX_WIDTH = 8
_EPOCH_WIDTH = 4
_MAX_POSITION_SIZE = 255
"""Limit in bytes, checked apart: limits inside patterns make them slow to compile."""
_MAX_UUID_SIZE = 64
_UUID_PATTERN = r"\A[0-9A-Za-z_-]*\z"

_RANKS = {"UPDATE-DELETE": "0", "INSERT": "1", "UPDATE": "2", "UPDATE-INSERT": "2", "DELETE": "3"}
_RANKED_TYPES = pa.array(_RANKS.keys(), pa.string())
_RANK_DIGITS = pa.array(_RANKS.values(), pa.string())


@dataclass(frozen=True)
class OrderPart:
    """A part of the orders of some changes: null if unknown, for the given reason."""

    texts: pa.Array
    reason: str | pa.Array


def join_parts(*texts: pa.Array | str) -> pa.Array:
    """Join the texts of parts; null where any of them is."""
    return pc.binary_join_element_wise(*texts, ".")


def number_pattern(name: str) -> str:
    """Return a pattern for a number that fits, with a group for it without leading zeros."""
    return rf"0*(?P<{name}>[0-9]{{1,{NUMBER_WIDTH}}})"


def hex_pattern(name: str) -> str:
    """Return the same for a hexadecimal number."""
    return rf"0*(?P<{name}>[0-9A-Fa-f]{{1,{HEX_WIDTH}}})"


def pad_numbers(texts: pa.Array) -> pa.Array:
    """Pad decimal numbers to a fixed width; null if a text is not a number or does not fit."""
    digits = pc.ascii_ltrim(texts, "0")
    fits = pc.less_equal(pc.binary_length(digits), NUMBER_WIDTH)
    is_number = pc.and_(pc.ascii_is_decimal(texts), fits)
    return pc.ascii_lpad(pc.if_else(is_number, digits, None), NUMBER_WIDTH, "0")


def pad_hex(texts: pa.Array) -> pa.Array:
    """Pad hexadecimal numbers, which must fit, to a fixed width in upper case."""
    return pc.ascii_lpad(pc.ascii_upper(texts), HEX_WIDTH, "0")


def extract_groups(texts: pa.Array, pattern: str) -> dict[str, pa.Array]:
    """Return the named groups of a pattern; null where it does not match the whole text."""
    fits = pc.less_equal(pc.binary_length(texts), _MAX_POSITION_SIZE)
    groups = pc.extract_regex(pc.if_else(fits, texts, None), rf"\A(?:{pattern})\z")
    return dict(zip(groups.type.names, groups.flatten(), strict=True))


def epochs(lineages: Sequence[str]) -> dict[str, str]:
    """Return the epoch of each lineage."""
    if len(set(lineages)) < len(lineages) or len(lineages) > 10**_EPOCH_WIDTH:
        raise UsageError(
            "bad-argument",
            "the list of lineages has a duplicate or is too long",
            hint="List each lineage once, where it first took over.",
        )
    return {lineage: f"{index:0{_EPOCH_WIDTH}}" for index, lineage in enumerate(lineages)}


def epoch_part(lineages: pa.Array, epochs: dict[str, str]) -> OrderPart:
    """Return the epochs of changes, given their lineages."""
    names, texts = pa.array(epochs.keys(), pa.string()), pa.array(epochs.values(), pa.string())
    return OrderPart(
        texts.take(pc.index_in(lineages, value_set=names, skip_nulls=True)),
        pc.binary_join_element_wise("the lineage ", lineages, " is not in the list", ""),
    )


def change_type_part(changes: pa.RecordBatch) -> OrderPart:
    """Return the ranks of change types."""
    indexes = pc.index_in(changes.column("_change_type"), value_set=_RANKED_TYPES)
    return OrderPart(
        _RANK_DIGITS.take(indexes), f"the change type is not one of {', '.join(_RANKS)}"
    )


def uuid_part(changes: pa.RecordBatch) -> OrderPart:
    """Return the uuids; a missing one sorts below all others."""
    uuids = changes.column("_uuid").fill_null("")
    fits = pc.less_equal(pc.binary_length(uuids), _MAX_UUID_SIZE)
    is_valid = pc.and_(fits, pc.match_substring_regex(uuids, _UUID_PATTERN))
    return OrderPart(
        pc.if_else(is_valid, uuids, None), "the uuid is too long or has invalid characters"
    )
