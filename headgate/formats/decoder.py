"""Decoding the payloads of one schema into columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from headgate.reasons import Reason

MessageChoice = tuple[int, ...] | str | None
"""Which message of a protobuf schema a payload is: the indexes that lead to it, its name, or None
for the root message, the only one of the file that no other message contains."""

FIRST_MESSAGE = (0,)
ROOT_MESSAGE = None


@dataclass(frozen=True)
class Decoded:
    """Columns of the payloads that could be decoded, and what was wrong with the others."""

    columns: pa.RecordBatch
    bad: dict[int, str]
    """Position in the payloads to what is wrong with it."""
    unknown: Sequence[int] = ()
    """Positions of payloads that are decoded, but have fields that the schema does not have."""


class Decoder(Protocol):
    """Decodes payloads of one schema; the columns depend on the bytes and the schema alone."""

    @property
    def record_name(self) -> str: ...

    @property
    def schema(self) -> pa.Schema:
        """The columns, each with what is known of its field."""
        ...

    def decode(self, payloads: pa.BinaryArray) -> Decoded: ...


@dataclass(frozen=True)
class Refusal:
    """Why there is no decoder for a schema id."""

    reason: Reason
    detail: str


def only_length(rows: int) -> pa.RecordBatch:
    """A message without fields still is a record: no columns, but as many rows."""
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
