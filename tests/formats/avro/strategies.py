"""Strategies for Avro schemas and their payloads, including unusual valid encodings."""

from __future__ import annotations

from itertools import count
from typing import Any

from hypothesis import strategies as st

from tests.formats.avro.writing import long_bytes, string_bytes

_DECIMALS = [(4, 2), (38, 10), (50, 3)]
_PRIMITIVES: list[Any] = [
    *["null", "boolean", "int", "long", "float", "double", "bytes", "string"],
    {"type": "enum", "symbols": ["RED", "GREEN", "BLUE"]},
    *({"type": "fixed", "size": size} for size in (0, 1, 5)),
    {"type": "fixed", "size": 16, "logicalType": "uuid"},
    {"type": "fixed", "size": 12, "logicalType": "duration"},
    {"type": "fixed", "size": 18, "logicalType": "decimal", "precision": 30, "scale": 30},
    {"type": "fixed", "size": 3, "logicalType": "decimal", "precision": 6, "scale": 1},
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-nanos"},
    *(
        {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
        for precision, scale in _DECIMALS
    ),
]


def _records(inside: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inside, max_size=4).map(lambda kinds: {"type": "record", "fields": kinds})


def _nested(inside: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        inside.map(lambda items: {"type": "array", "items": items}),
        inside.map(lambda values: {"type": "map", "values": values}),
        inside.map(lambda kind: ["null", kind]),
        st.lists(inside, min_size=1, max_size=4),
        _records(inside),
    )


kinds = st.recursive(st.sampled_from(_PRIMITIVES), _nested, max_leaves=8)
schemas = st.lists(kinds, min_size=1, max_size=4).map(
    lambda made: _named({"type": "record", "fields": made}, count())
)
"""Records; some are refused, for nested unions or arrays of zero-size items."""


def _named(kind: Any, numbers: count[int]) -> Any:
    if isinstance(kind, list):
        return [_named(one, numbers) for one in kind]
    if isinstance(kind, str):
        return kind
    made = dict(kind)
    if kind["type"] in ("record", "enum", "fixed"):
        made["name"] = f"T{next(numbers)}"
    for key in ("items", "values"):
        if key in kind:
            made[key] = _named(kind[key], numbers)
    if "fields" in kind:
        made["fields"] = [
            {"name": f"f{at}", "type": _named(one, numbers)}
            for at, one in enumerate(kind["fields"])
        ]
    return made


def payloads(kind: Any) -> st.SearchStrategy[bytes]:
    """Return a strategy for encoded values of a type."""
    if isinstance(kind, list):
        return st.one_of([payloads(one).map(long_bytes(at).__add__) for at, one in enumerate(kind)])
    word = kind if isinstance(kind, str) else kind["type"]
    if word == "record":
        return st.tuples(*(payloads(one["type"]) for one in kind["fields"])).map(b"".join)
    if word == "enum":
        return st.sampled_from(range(len(kind["symbols"]))).map(long_bytes)
    if word == "array":
        return st.builds(_blocks, st.lists(payloads(kind["items"]), max_size=3), st.booleans())
    if word == "map":
        entries = st.dictionaries(st.text(max_size=2), payloads(kind["values"]), max_size=3)
        joined = entries.map(lambda one: [string_bytes(key) + one[key] for key in one])
        return st.builds(_blocks, joined, st.booleans())
    if isinstance(kind, dict) and kind.get("logicalType") == "decimal":
        limit = 10 ** kind["precision"] - 1
        return st.integers(-limit, limit).map(lambda one: _decimal(one, kind))
    return _plain(word, kind)


def _plain(word: str, kind: Any) -> st.SearchStrategy[bytes]:
    millis = isinstance(kind, dict) and "millis" in kind.get("logicalType", "")
    largest = 2**63 // 1_000 if millis else 2**63
    return {
        "null": lambda: st.just(b""),
        "boolean": lambda: st.sampled_from([b"\0", b"\1"]),
        "int": lambda: st.integers(-(2**31), 2**31 - 1).map(long_bytes),
        "long": lambda: st.integers(-largest, largest - 1).map(long_bytes),
        "float": lambda: st.binary(min_size=4, max_size=4),
        "double": lambda: st.binary(min_size=8, max_size=8),
        "bytes": lambda: st.binary(max_size=4).map(lambda one: long_bytes(len(one)) + one),
        "string": lambda: st.text(max_size=4).map(string_bytes),
        "fixed": lambda: st.binary(min_size=kind["size"], max_size=kind["size"]),
    }[word]()


def _decimal(number: int, kind: dict[str, Any]) -> bytes:
    if kind["type"] == "fixed":
        return number.to_bytes(kind["size"], "big", signed=True)
    raw = number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)
    return long_bytes(len(raw)) + raw


def _blocks(items: list[bytes], apart: bool) -> bytes:
    """Encode items in one block, or each in a block of its own with its size."""
    if apart:
        return b"".join(long_bytes(-1) + long_bytes(len(one)) + one for one in items) + b"\0"
    return (long_bytes(len(items)) if items else b"") + b"".join(items) + b"\0"


@st.composite
def corrupted(draw: st.DrawFn, whole: bytes) -> bytes:
    """Corrupt a payload."""
    at = draw(st.integers(0, len(whole)))
    some = draw(st.sampled_from([b"", b"\0", b"\1", b"\2", b"\3", b"\x80", b"\xff"]))
    return whole[:at] + some + whole[at + draw(st.sampled_from([0, 1, 2])) :]
