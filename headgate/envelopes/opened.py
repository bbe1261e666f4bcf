"""Opened records: grouped by route and schema, or rejected."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

import numpy as np
import pyarrow as pa

from headgate.formats.decoder import MessageChoice
from headgate.formats.decoders import Decoders
from headgate.reasons import Reason
from headgate.registry.registry import SchemaKey

MessageKey = tuple[SchemaKey, MessageChoice]
"""A schema, and which of its messages is meant."""


@dataclass(frozen=True)
class Rejected:
    """A record for the quarantine: its row, and why."""

    row: int
    reason: Reason
    detail: str = ""
    route: str | None = None
    schema_key: SchemaKey | None = None


_MAX_GROUP = 200_000
"""Records to decode together; more are slower and take more memory."""


@dataclass(frozen=True, eq=False)
class Group:
    """Records of one route and one message; a large number of them is split into several groups."""

    route: str
    message: MessageKey
    rows: np.ndarray
    source: pa.BinaryArray
    """Payloads of this group, and maybe of others."""
    positions: np.ndarray
    """Of the group's payloads in the source."""

    @property
    def payloads(self) -> pa.BinaryArray:
        """A copy of the group's payloads."""
        return payloads_of([self])

    def part(self, part: slice) -> Group:
        return Group(self.route, self.message, self.rows[part], self.source, self.positions[part])


def payloads_of(groups: Sequence[Group]) -> pa.BinaryArray:
    """Return the payloads of groups, one after the other, in one copy."""
    sources = {id(group.source): group.source for group in groups}
    if len(sources) > 1:
        return pa.concat_arrays([group.payloads for group in groups])
    (source,) = sources.values()
    return source.take(pa.array(np.concatenate([group.positions for group in groups])))


@dataclass
class Opened:
    """Groups of records, and the records that are in none."""

    groups: list[Group] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)

    def add(
        self,
        route: str,
        message: MessageKey,
        rows: np.ndarray,
        source: pa.BinaryArray,
        positions: np.ndarray,
    ) -> None:
        """Add the records of a route and a message, with the positions of their payloads."""
        for start in range(0, len(rows), _MAX_GROUP):
            part = slice(start, start + _MAX_GROUP)
            self.groups.append(Group(route, message, rows[part], source, positions[part]))


class Envelope(Protocol):
    """A way of opening records."""

    def open(self, records: pa.Table, decoders: Decoders) -> Opened:
        """Open records whose values fit into one array.

        Groups are made of all of them together: with pieces, each group would cost time once per
        piece, and a batch may have thousands of groups.
        """
        ...


def split_by(codes: np.ndarray) -> list[np.ndarray]:
    """Return the positions of each distinct code, in order, with one sort for all."""
    if not len(codes):
        return []
    order = stable_order(codes)
    starts = np.flatnonzero(np.diff(codes[order])) + 1
    bounds = [0, *starts.tolist(), len(order)]
    return [order[start:end] for start, end in pairwise(bounds)]


def stable_order(codes: np.ndarray) -> np.ndarray:
    """Return the positions of all codes, those of equal ones together and in order."""
    groups = pa.array(codes).dictionary_encode()
    codes = groups.indices.to_numpy()
    if len(groups.dictionary) < 1 << 16:
        codes = codes.astype(np.uint16)  # numpy sorts these in linear time
    return np.argsort(codes, kind="stable")


@contextmanager
def pause_collection() -> Iterator[None]:
    """Pause the cyclic garbage collector; reference counting still frees memory."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
