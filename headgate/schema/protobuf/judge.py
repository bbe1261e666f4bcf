"""python-protobuf, whose word counts: what it refuses is bad, and what it reads is the value."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from headgate.schema.protobuf.descriptors import pool_of
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


NOTHING_JUDGED = Judged({}, [])


@dataclass(frozen=True)
class Judge:
    """Reads payloads of one message one by one."""

    files: bytes
    """The compiled FileDescriptorSet: most schemas never need the class, which is much larger."""
    name: str
    columns: Message

    @cached_property
    def message(self) -> Any:
        """The message's class."""
        from google.protobuf.message_factory import GetMessageClass

        return GetMessageClass(pool_of(self.files).FindMessageTypeByName(self.name))

    def judged(self, payloads: pa.BinaryArray, rows: np.ndarray) -> Judged:
        if not len(rows):
            return NOTHING_JUDGED
        has_unknown, refused = _each(self._has_unknown, payloads, rows)
        return Judged(refused, [row for row, found in has_unknown.items() if found])

    def read(
        self, payloads: pa.BinaryArray, rows: np.ndarray
    ) -> tuple[dict[int, dict[str, Any]], dict[int, str]]:
        """Their values by column, and why there are none of the others."""
        if not len(rows):
            return {}, {}
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
