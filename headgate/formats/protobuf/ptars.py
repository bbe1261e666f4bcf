"""Payloads read by ptars, in Rust and straight into columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from headgate.formats.protobuf.descriptors import pool_of
from headgate.formats.protobuf.field import is_map
from headgate.formats.protobuf.message import Message
from headgate.formats.protobuf.plan import Plan
from headgate.formats.protobuf.wire import Unstorable, Wire, size_without_unknown

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
        unknown = sorted({*self.unknown, *other.unknown})
        return Judged(self.refused | other.refused, unknown)


NOTHING_JUDGED = Judged({}, [])


_WIRE_TYPES = {
    0: "varint",
    1: "64 bits",
    2: "length-delimited",
    3: "group",
    5: "32 bits",
}
_MOST_NAMED = 10


@dataclass(frozen=True)
class UnknownFields:
    """Wire data of a payload that its message does not declare."""

    data: bytes
    """The unknown fields as they were sent, one after the other; the whole payload if any of them
    is inside of another message."""
    detail: str
    """Numbers and wire types of fields that are not even extensions."""
    only_extensions: bool
    """Whether every field is in a range that its message declares for extensions."""


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

    def unknown_fields(self, payload: bytes) -> UnknownFields:
        message = self.message.FromString(payload)
        # Once each: a list of messages may have thousands of one kind.
        strange = list(dict.fromkeys(_undeclared(message)))
        named = ", ".join(strange[:_MOST_NAMED])
        more = f" and {len(strange) - _MOST_NAMED} more" if len(strange) > _MOST_NAMED else ""
        whole = self.message.SerializePartialToString(message, deterministic=True)
        self.message.DiscardUnknownFields(message)
        known = self.message.SerializePartialToString(message, deterministic=True)
        # Unknown fields are written last, and those inside of a message make that one longer.
        data = whole[len(known) :] if whole.startswith(known) else payload
        return UnknownFields(data, f"message {self.name} has no field {named}{more}", not strange)

    def _has_unknown(self, payload: bytes) -> bool:
        known = size_without_unknown(self.message.FromString(payload))
        if known == len(payload):
            return False
        whole = self.message.SerializePartialToString(self.message.FromString(payload))
        return len(whole) != known

    def _values(self, payload: bytes) -> dict[str, Any]:
        return self.columns.value(self.message.FromString(payload))


def _undeclared(message: Any, path: str = "") -> Iterator[str]:
    """Numbers and wire types of unknown fields that are not in a range for extensions."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    of = type(message)  # not the message itself: a field may have the name of a method
    ranges = of.DESCRIPTOR.extension_ranges
    unknown: Any = UnknownFieldSet(message)
    for found in unknown:
        if not any(start <= found.field_number < end for start, end in ranges):
            yield f"{path}{found.field_number} ({_WIRE_TYPES[found.wire_type]})"
    for name, inside in _messages_inside(message):
        yield from _undeclared(inside, f"{path}{name}.")


def _messages_inside(message: Any) -> Iterator[tuple[str, Any]]:
    for field, value in type(message).ListFields(message):
        if field.message_type is None:
            continue
        if not field.is_repeated:
            yield field.name, value
        elif not is_map(field):
            yield from ((field.name, one) for one in value)
        elif field.message_type.fields_by_name["value"].message_type is not None:
            yield from ((field.name, one) for one in value.values())


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


_SAFE_LENGTH = 16 << 10
"""A payload nests groups no deeper than it is long, and ptars recurses into them unbounded."""
_MOST_NUMBERS = 1 << 24


@dataclass(frozen=True)
class Reading:
    """What became of payloads."""

    arrays: list[pa.Array]
    rows: np.ndarray
    """Positions of the payloads whose values are in the arrays."""
    odd: np.ndarray
    """Positions of those, or of others, that python-protobuf must read."""
    judged: Judged

    @classmethod
    def of_none(cls, message: Message, rows: np.ndarray, judged: Judged) -> Reading:
        """All that is to be read, python-protobuf must read."""
        return cls([pa.array([], one.type) for one in message.fields], rows[:0], rows, judged)


@dataclass(frozen=True)
class PtarsReader:
    """Reads payloads of one message.

    ptars lets pass some of what protobuf refuses, and takes no notice of what it does not know.
    But a payload is exact if it is just as long as its values are as they are declared: there is
    nothing else in it. Of all others python-protobuf is asked.

    Lists of numbers can be sent otherwise than declared, and a byte shorter. Whoever fills that
    byte with another one makes an exact payload that protobuf refuses: it is decoded.
    """

    message: Message
    handler: Any
    judge: Judge
    has_maps: bool
    has_lists_of_numbers: bool

    @classmethod
    def of(cls, message: Message, judge: Judge, plan: Plan) -> PtarsReader | None:
        """None where the field numbers are so high that ptars would take gigabytes for them."""
        wire = Wire.empty()
        name = wire.message(message.fields)
        if sum(wire.highest) > _MOST_NUMBERS:
            return None
        return cls(message, wire.handler(name), judge, plan.has_maps, plan.has_lists_of_numbers)

    def read(self, payloads: pa.BinaryArray, lengths: np.ndarray, rows: np.ndarray) -> Reading:
        """Those of the payloads, which are so long, that are in these rows."""
        long = rows[:0]
        if lengths.max(initial=0) > _SAFE_LENGTH:
            long = rows[lengths[rows] > _SAFE_LENGTH]
        judged = self.judge.judged(payloads, long)
        rows = _without(rows, judged)
        failed: list[int] = []
        batches = self._batches(_taken(payloads, rows)) if len(rows) else []
        all_are_judged = batches is None
        if batches is None:
            judged |= self._judged(payloads, lengths, _difference(rows, long))
            rows = _without(rows, judged)
            batches, failed = self._all_batches(_taken(payloads, rows))
        if not batches:
            return Reading.of_none(self.message, rows, judged)
        read = np.delete(rows, failed) if failed else rows
        raws = self._raws(batches)
        arrays, odd = self.message.read_fields(raws)
        doubtful = rows[:0] if all_are_judged else self._inexact(raws, lengths, read)
        if odd is not None:
            # An unknown value of a closed enum is an unknown field, though it is just as long.
            doubtful = np.union1d(doubtful, read[odd])
        doubtful = _difference(doubtful, long)
        if len(doubtful):
            judged |= self.judge.judged(payloads, doubtful)
        # Of a map's entry with an unknown field, protobuf takes nothing.
        suspect = judged.unknown if self.has_maps else []
        if odd is None and not failed and not suspect:
            return Reading(arrays, read, rows[:0], judged)
        strange = [rows[failed], rows[:0] if odd is None else read[odd], suspect]
        return Reading(arrays, read, np.unique(np.concatenate(strange).astype(np.int64)), judged)

    def read_exact(self, payloads: pa.BinaryArray, lengths: np.ndarray) -> list[pa.Array] | None:
        """The columns of payloads which are so long, if all are exact and none is odd."""
        if not self.message.fields or lengths.max(initial=0) > _SAFE_LENGTH:
            return None
        batches = self._batches(payloads)
        if batches is None:
            return None
        raws = self._raws(batches)
        arrays, odd = self.message.read_fields(raws)
        is_exact = np.array_equal(lengths, self.message.sizes_of_fields(raws, len(lengths)))
        return arrays if odd is None and is_exact else None

    def _judged(self, payloads: pa.BinaryArray, lengths: np.ndarray, rows: np.ndarray) -> Judged:
        """What is exact is not judged here either: the outcome is that among many others."""
        judged = self.judge.judged(payloads, rows)
        suspects = np.array(sorted([*judged.refused, *judged.unknown]), np.int64)
        if not len(suspects) or not self.has_lists_of_numbers:
            return judged
        batches, failed = self._all_batches(_taken(payloads, suspects))
        if not batches:
            return judged
        read = np.delete(suspects, failed)
        exact = np.setdiff1d(read, self._inexact(self._raws(batches), lengths, read))
        return judged.without(exact.tolist())

    def _inexact(self, raws: list[pa.Array], lengths: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """The rows whose payloads have another length than their values."""
        if len(rows) < len(lengths):
            lengths = lengths[rows]
        return np.asarray(rows[lengths != self.message.sizes_of_fields(raws, len(rows))])

    def _raws(self, batches: list[pa.RecordBatch]) -> list[pa.Array]:
        if len(batches) == 1:
            return list(batches[0].columns)
        return [
            pa.concat_arrays([batch.column(place) for batch in batches])
            for place in range(len(self.message.fields))
        ]

    def _batches(self, payloads: pa.BinaryArray) -> list[pa.RecordBatch] | None:
        """All in one, or None: one bad record fails a whole array."""
        try:
            return [self.handler.array_to_record_batch(payloads)]
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # a panic in Rust is no Exception
            return None

    def _all_batches(self, payloads: pa.BinaryArray) -> tuple[list[pa.RecordBatch], list[int]]:
        """In as few as can be, and the places of those that ptars cannot read."""
        batches: list[pa.RecordBatch] = []
        failed: list[int] = []

        def halve(start: int, stop: int) -> None:
            made = self._batches(payloads[start:stop]) if start < stop else []
            if made is not None:
                batches.extend(made)
            elif stop - start == 1:
                failed.append(start)
            else:
                middle = (start + stop) // 2
                halve(start, middle)
                halve(middle, stop)

        halve(0, len(payloads))
        return batches, failed


def _without(rows: np.ndarray, judged: Judged) -> np.ndarray:
    return np.setdiff1d(rows, list(judged.refused)) if judged.refused else rows


def _difference(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    return np.setdiff1d(rows, others) if len(rows) and len(others) else rows


def _taken(payloads: pa.BinaryArray, rows: np.ndarray) -> pa.BinaryArray:
    return payloads if len(rows) == len(payloads) else payloads.take(pa.array(rows))
