"""Many records opened: a piece at a time, with few groups for what all pieces have of one kind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from headgate.envelope.opened import Envelope, Group, MessageKey, Opened
from headgate.schema.decoders import Decoders

_LARGEST_GROUP = 200_000
"""Records that are decoded together: more would be slower, and take more memory."""

_Part = tuple[int, Group]
"""Of one piece, with the row of the whole at which the piece begins."""


def open_in_pieces(envelope: Envelope, records: pa.Table, decoders: Decoders) -> Opened:
    """The chunks of a table are the pieces: they should be no larger than caches are."""
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
        if rows >= _LARGEST_GROUP:
            yield bundle
            bundle, rows = [], 0
    if bundle:
        yield bundle


def _together(parts: list[_Part]) -> Group:
    _, first = parts[0]
    rows = np.concatenate([group.rows + start for start, group in parts])
    pieces = tuple(piece for _, group in parts for piece in group.pieces)
    return Group(first.route, first.message, rows, pieces)
