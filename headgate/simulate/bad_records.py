"""Records that no pipeline can land, each with the reason it should get."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headgate.quarantine.reason import Reason

Wrap = Callable[[str | None, int | None, bytes | None], bytes]
"""Route, schema id and payload to the bytes of a wrapper."""


@dataclass(frozen=True)
class BadKind:
    """A way of being bad."""

    reason: Reason
    spoil: Callable[[Wrap, str, int, bytes], bytes | None]


UNKNOWN_ID = 2_000_000_000

BAD_KINDS = (
    BadKind(Reason.NULL_VALUE, lambda wrap, route, schema, payload: None),
    BadKind(
        Reason.ENVELOPE_UNDECODABLE,
        lambda wrap, route, schema, payload: wrap(route, schema, payload)[:-1],
    ),
    BadKind(Reason.ENVELOPE_UNDECODABLE, lambda wrap, route, schema, payload: b"\xff" * 40),
    BadKind(
        Reason.ENVELOPE_UNDECODABLE,
        lambda wrap, route, schema, payload: b"\x0a\xff\xff\xff\xff\x0fgame",
    ),
    BadKind(
        Reason.SCHEMA_UNKNOWN, lambda wrap, route, schema, payload: wrap(route, UNKNOWN_ID, payload)
    ),
    BadKind(Reason.ROUTE_MISSING, lambda wrap, route, schema, payload: wrap(None, schema, payload)),
    BadKind(
        Reason.ROUTE_UNUSABLE, lambda wrap, route, schema, payload: wrap("../..", schema, payload)
    ),
    BadKind(
        Reason.SCHEMA_ID_MISSING, lambda wrap, route, schema, payload: wrap(route, None, payload)
    ),
    BadKind(Reason.PAYLOAD_MISSING, lambda wrap, route, schema, payload: wrap(route, schema, None)),
    BadKind(
        Reason.PAYLOAD_UNDECODABLE,
        lambda wrap, route, schema, payload: wrap(route, schema, payload[:-1]),
    ),
    BadKind(
        Reason.PAYLOAD_UNDECODABLE,
        lambda wrap, route, schema, payload: wrap(route, schema, payload + b"\x0a"),
    ),
)
