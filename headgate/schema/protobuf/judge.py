"""python-protobuf, whose word counts: what it refuses is bad, and what it reads is the value."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from headgate.schema.protobuf.message import Message
from headgate.schema.protobuf.wire import Unstorable, size_without_unknown

T = TypeVar("T")


@dataclass(frozen=True)
class Judged:
    """What python-protobuf says of payloads, without reading their values."""

    refused: dict[int, str]
    """Those that are no such message, and why."""
    unknown: list[int]
    """Those with fields in them that the schema does not have."""

    def without(self, rows: Collection[int]) -> Judged:
        return Judged(
            {row: why for row, why in self.refused.items() if row not in rows},
            [row for row in self.unknown if row not in rows],
        )

    def __or__(self, other: Judged) -> Judged:
        return Judged(self.refused | other.refused, self.unknown + other.unknown)


@dataclass(frozen=True)
class Judge:
    """Reads payloads of one message one by one."""

    message: Any
    """The message's class."""
    columns: Message

    def judged(self, payloads: pa.BinaryArray, rows: np.ndarray) -> Judged:
        has_unknown, refused = _each(self._has_unknown, payloads, rows)
        return Judged(refused, [row for row, found in has_unknown.items() if found])

    def read(
        self, payloads: pa.BinaryArray, rows: np.ndarray
    ) -> tuple[dict[int, dict[str, Any]], dict[int, str]]:
        """Their values by column, and why there are none of the others."""
        return _each(self._values, payloads, rows)

    def _has_unknown(self, payload: bytes) -> bool:
        known = size_without_unknown(self.message.FromString(payload))
        if known == len(payload):
            return False
        whole = self.message.SerializePartialToString(self.message.FromString(payload))
        return len(whole) != known

    def _values(self, payload: bytes) -> dict[str, Any]:
        return self.columns.value(self.message.FromString(payload))


def _each(
    read: Callable[[bytes], T], payloads: pa.BinaryArray, rows: np.ndarray
) -> tuple[dict[int, T], dict[int, str]]:
    from google.protobuf.message import DecodeError

    made: dict[int, T] = {}
    refused: dict[int, str] = {}
    for row in rows.tolist():
        try:
            made[row] = read(payloads[row].as_py() or b"")
        except (DecodeError, Unstorable) as error:
            refused[row] = str(error)[:500]
    return made, refused
