"""Payloads decoded by ptars: in Rust, straight into columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.formats.protobuf.message import Message, Planner
from headgate.formats.protobuf.reference import ProtobufReferenceDecoder, Validation
from headgate.formats.protobuf.wire import PtarsSchema

_SAFE_LENGTH = 16 << 10
"""ptars recurses into groups without a limit, but a payload cannot nest deeper than it is long."""
_MAX_FIELD_NUMBERS = 1 << 24
_CHUNK = 512
_PARTS = 16


@dataclass(frozen=True)
class PtarsResult:
    """Columns of the payloads that ptars could read, and which of them need python-protobuf."""

    arrays: list[pa.Array]
    rows: np.ndarray
    """Positions of the payloads whose values are in the arrays."""
    fallback: np.ndarray
    """Positions that python-protobuf must decode, whether the arrays have them or not."""
    validation: Validation

    @classmethod
    def without_rows(
        cls, message: Message, rows: np.ndarray, validation: Validation
    ) -> PtarsResult:
        """Leave all rows to python-protobuf."""
        return cls([pa.array([], one.type) for one in message.fields], rows[:0], rows, validation)


@dataclass(frozen=True)
class _Attempt:
    """The batches that ptars decoded from an array, and the positions that are not in them."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    invalid: dict[int, str] = field(default_factory=dict)
    failed: list[int] = field(default_factory=list)
    """Payloads that python-protobuf parses, but ptars rejects."""


@dataclass(frozen=True)
class PtarsDecoder:
    """Decodes payloads of one message.

    ptars accepts some payloads that protobuf rejects, and skips unknown fields without notice. But
    a payload that is exactly as long as the encoding of its values has nothing else in it. All
    other payloads are validated with python-protobuf.

    A list of numbers can be sent in another encoding than the declared one, and be a byte shorter.
    A payload that is padded by that byte looks exact and is decoded, though protobuf rejects it.
    """

    message: Message
    handler: Any
    reference: ProtobufReferenceDecoder
    has_maps: bool
    has_lists_of_numbers: bool

    @classmethod
    def of(
        cls, message: Message, reference: ProtobufReferenceDecoder, planner: Planner
    ) -> PtarsDecoder | None:
        """Return None if field numbers are so high that ptars would need gigabytes for them."""
        schema = PtarsSchema.empty()
        name = schema.message(message.fields)
        if sum(schema.highest) > _MAX_FIELD_NUMBERS:
            return None
        handler = schema.handler(name)
        return cls(message, handler, reference, planner.has_maps, planner.has_lists_of_numbers)

    def read(self, payloads: pa.BinaryArray, lengths: np.ndarray, rows: np.ndarray) -> PtarsResult:
        """Decode the payloads of these rows; `lengths` are those of all payloads."""
        long = rows[:0]
        if lengths.max(initial=0) > _SAFE_LENGTH:
            long = rows[lengths[rows] > _SAFE_LENGTH]
        validation = self.reference.validate(payloads, long)
        rows = _valid(rows, validation)
        attempt = _Attempt()
        if len(rows):
            self._decode(_taken(payloads, rows), lengths[rows], 0, attempt)
        read, failed = rows, rows[:0]
        if attempt.invalid or attempt.failed:
            invalid = {int(rows[place]): why for place, why in attempt.invalid.items()}
            validation |= Validation(invalid)
            failed = rows[attempt.failed]
            read = np.delete(rows, [*attempt.failed, *attempt.invalid])
        suspicious, again = failed, failed
        arrays: list[pa.Array] = []
        if attempt.batches:
            raws = self._columns(attempt.batches)
            arrays, mismatched = self.message.read_fields(raws)
            suspicious = _union(suspicious, self._inexact(raws, lengths, read))
            if mismatched is not None:
                # An unknown value of a closed enum is an unknown field, but has the same length.
                suspicious = _union(suspicious, read[mismatched])
                again = _union(again, read[mismatched])
        validation |= self.reference.validate(payloads, _difference(suspicious, long))
        if not attempt.batches:
            return PtarsResult.without_rows(self.message, failed, validation)
        if self.has_maps:
            # Protobuf skips a map entry that has an unknown field; ptars does not.
            again = _union(again, np.array(validation.unknown, np.int64))
        return PtarsResult(arrays, read, again, validation)

    def read_exact(self, payloads: pa.BinaryArray, lengths: np.ndarray) -> list[pa.Array] | None:
        """Return the columns if no payload needs python-protobuf, else None."""
        if not self.message.fields or lengths.max(initial=0) > _SAFE_LENGTH:
            return None
        batches = self._decode_at_once(payloads)
        if batches is None:
            return None
        raws = self._columns(batches)
        arrays, mismatched = self.message.read_fields(raws)
        is_exact = np.array_equal(lengths, self.message.sizes_of_fields(raws, len(lengths)))
        return arrays if mismatched is None and is_exact else None

    def _decode(
        self, payloads: pa.BinaryArray, lengths: np.ndarray, start: int, attempt: _Attempt
    ) -> None:
        """Decode an array at once, else in parts; python-protobuf parses only small ones that fail.

        The array begins at position `start` of the attempt.
        """
        batches = self._decode_at_once(payloads)
        if batches is not None:
            attempt.batches.extend(batches)
        elif len(payloads) > _CHUNK:
            size = max(_CHUNK, len(payloads) // _PARTS)
            for first in range(0, len(payloads), size):
                part = slice(first, first + size)
                self._decode(payloads[part], lengths[part], start + first, attempt)
        else:
            invalid = self._invalid(payloads, lengths)
            rest = np.delete(np.arange(len(payloads)), list(invalid))
            batches, failed = self._decode_in_parts(_taken(payloads, rest))
            attempt.batches.extend(batches)
            attempt.invalid.update({start + place: why for place, why in invalid.items()})
            attempt.failed.extend((start + rest[failed]).tolist())

    def _invalid(self, payloads: pa.BinaryArray, lengths: np.ndarray) -> dict[int, str]:
        """Return what is wrong with payloads, but not with exact ones, which are not validated."""
        short = np.flatnonzero(lengths <= _SAFE_LENGTH)  # longer ones are validated before
        found = self.reference.invalid(_taken(payloads, short))
        invalid = {int(short[place]): why for place, why in found.items()}
        if not invalid or not self.has_lists_of_numbers:
            return invalid
        suspects = np.array(list(invalid))
        batches, failed = self._decode_in_parts(_taken(payloads, suspects))
        if not batches:
            return invalid
        read = np.delete(suspects, failed)
        exact = np.setdiff1d(read, self._inexact(self._columns(batches), lengths, read)).tolist()
        return {place: why for place, why in invalid.items() if place not in exact}

    def _inexact(self, raws: list[pa.Array], lengths: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the rows whose payloads have another length than the encoding of their values."""
        if len(rows) < len(lengths):
            lengths = lengths[rows]
        return np.asarray(rows[lengths != self.message.sizes_of_fields(raws, len(rows))])

    def _columns(self, batches: list[pa.RecordBatch]) -> list[pa.Array]:
        if len(batches) == 1:
            return list(batches[0].columns)
        return [
            pa.concat_arrays([batch.column(place) for batch in batches])
            for place in range(len(self.message.fields))
        ]

    def _decode_at_once(self, payloads: pa.BinaryArray) -> list[pa.RecordBatch] | None:
        """Return None if any payload is bad: ptars fails for the whole array."""
        try:
            return [self.handler.array_to_record_batch(payloads)]
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # a panic in Rust is not an Exception
            return None

    def _decode_in_parts(self, payloads: pa.BinaryArray) -> tuple[list[pa.RecordBatch], list[int]]:
        """Return as few batches as possible, and the positions of payloads that ptars rejects."""
        batches: list[pa.RecordBatch] = []
        failed: list[int] = []

        def halve(start: int, stop: int) -> None:
            decoded = self._decode_at_once(payloads[start:stop]) if start < stop else []
            if decoded is not None:
                batches.extend(decoded)
            elif stop - start == 1:
                failed.append(start)
            else:
                middle = (start + stop) // 2
                halve(start, middle)
                halve(middle, stop)

        halve(0, len(payloads))
        return batches, failed


def _valid(rows: np.ndarray, validation: Validation) -> np.ndarray:
    return np.setdiff1d(rows, list(validation.invalid)) if validation.invalid else rows


def _difference(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    return np.setdiff1d(rows, others) if len(rows) and len(others) else rows


def _union(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    return np.union1d(rows, others) if len(others) else rows


def _taken(payloads: pa.BinaryArray, rows: np.ndarray) -> pa.BinaryArray:
    return payloads if len(rows) == len(payloads) else payloads.take(pa.array(rows))
