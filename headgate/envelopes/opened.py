"""Opened records: grouped by route and schema, or rejected."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
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


@dataclass(frozen=True, eq=False)
class Group:
    """Records of one route and one message; a large number of them is split into several groups."""

    route: str
    message: MessageKey
    rows: np.ndarray
    pieces: tuple[pa.BinaryArray, ...]

    @property
    def payloads(self) -> pa.BinaryArray:
        """The payloads in one array, copied if they are in several pieces."""
        return self.pieces[0] if len(self.pieces) == 1 else pa.concat_arrays(self.pieces)


@dataclass
class Opened:
    """Groups of records, and the records that are in none."""

    groups: list[Group] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)


class Envelope(Protocol):
    """A way of opening records."""

    def open(self, records: pa.Table, decoders: Decoders) -> Opened: ...


def split_by(codes: np.ndarray) -> list[np.ndarray]:
    """Return the positions of each distinct code, in order, with one sort for all."""
    if not len(codes):
        return []
    groups = pa.array(codes).dictionary_encode()
    codes = groups.indices.to_numpy()
    if len(groups.dictionary) < 1 << 16:
        codes = codes.astype(np.uint16)  # numpy sorts these in linear time
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.flatnonzero(np.diff(ordered)) + 1
    bounds = [0, *starts.tolist(), len(order)]
    return [order[start:end] for start, end in pairwise(bounds)]


def take_each(payloads: pa.BinaryArray, parts: list[np.ndarray]) -> list[pa.BinaryArray]:
    """Return the payloads at the positions of each part, as views of one copy."""
    if not parts:
        return []
    taken = payloads.take(pa.array(np.concatenate(parts)))
    ends = np.cumsum([len(part) for part in parts])
    return [taken.slice(end - len(part), len(part)) for part, end in zip(parts, ends, strict=True)]


_MAX_GROUP = 200_000
"""Records to decode together; more are slower and take more memory."""

_Part = tuple[int, Group]
"""A group of one piece, and the row at which that piece begins."""


def open_in_pieces(envelope: Envelope, records: pa.Table, decoders: Decoders) -> Opened:
    """Open a table chunk by chunk; chunks that fit into the CPU caches are fastest."""
    parts: dict[tuple[str, MessageKey], list[_Part]] = defaultdict(list)
    whole, start = Opened(), 0
    for piece in records.to_batches():
        opened = envelope.open(pa.Table.from_batches([piece]), decoders)
        whole.rejected += [replace(one, row=one.row + start) for one in opened.rejected]
        for group in opened.groups:
            parts[group.route, group.message].append((start, group))
        start += len(piece)
    whole.groups = [_together(several) for of in parts.values() for several in _bundles(of)]
    return whole


def _bundles(parts: Iterable[_Part]) -> Iterator[list[_Part]]:
    bundle: list[_Part] = []
    rows = 0
    for part in parts:
        bundle.append(part)
        rows += len(part[1].rows)
        if rows >= _MAX_GROUP:
            yield bundle
            bundle, rows = [], 0
    if bundle:
        yield bundle


def _together(parts: list[_Part]) -> Group:
    _, first = parts[0]
    rows = np.concatenate([group.rows + start for start, group in parts])
    pieces = tuple(piece for _, group in parts for piece in group.pieces)
    return Group(first.route, first.message, rows, pieces)


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
