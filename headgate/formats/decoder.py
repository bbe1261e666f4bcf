"""Decoding the payloads of one schema into columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from headgate.reasons import Reason

MessageChoice = tuple[int, ...] | str | None
"""Which message of a protobuf schema a payload is: the indexes that lead to it, its name, or None
for the root message, the only one of the file that no other message contains."""

FIRST_MESSAGE = (0,)
ROOT_MESSAGE = None


@dataclass(frozen=True)
class Decoded:
    """Columns of the payloads that could be decoded, and what is wrong with the others."""

    columns: pa.RecordBatch
    bad: dict[int, str]
    """Position in the payloads to what is wrong."""
    unknown: Sequence[int] = ()
    """Positions of decoded payloads with fields that the schema does not have."""


class Decoder(Protocol):
    """Decodes payloads of one schema; the columns depend only on the bytes and the schema."""

    @property
    def record_name(self) -> str: ...

    @property
    def schema(self) -> pa.Schema:
        """The columns, with metadata of their fields."""
        ...

    @property
    def width(self) -> int:
        """Cells of a record, without those in lists."""
        ...

    def most_cells(self, payloads: pa.BinaryArray, enough: int) -> np.ndarray | None:
        """Return an upper bound of the cells of each payload, without decoding them.

        None if all of them together cannot have more than `enough`.
        """
        ...

    def decode(self, payloads: pa.BinaryArray) -> Decoded: ...


@dataclass(frozen=True)
class Refusal:
    """Why a schema id has no decoder."""

    reason: Reason
    detail: str


def only_length(rows: int) -> pa.RecordBatch:
    """Return rows without columns, for messages without fields."""
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
