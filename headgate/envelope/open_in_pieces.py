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


def open_in_pieces(envelope: Envelope, records: pa.Table, decoders: Decoders) -> Opened:
    """The chunks of a table are the pieces: they should be no larger than caches are."""
    parts: dict[tuple[str, MessageKey], list[Group]] = defaultdict(list)
    whole, start = Opened(), 0
    for piece in records.to_batches():
        opened = envelope.open(pa.Table.from_batches([piece]), decoders)
        whole.rejected += [replace(one, row=one.row + start) for one in opened.rejected]
        for group in opened.groups:
            parts[group.route, group.message].append(replace(group, rows=group.rows + start))
        start += len(piece)
    whole.groups = [_together(several) for of in parts.values() for several in _bundles(of)]
    return whole


def _bundles(groups: Iterable[Group]) -> Iterator[list[Group]]:
    bundle: list[Group] = []
    for group in groups:
        bundle.append(group)
        if sum(len(one.rows) for one in bundle) >= _LARGEST_GROUP:
            yield bundle
            bundle = []
    if bundle:
        yield bundle


def _together(groups: list[Group]) -> Group:
    rows = np.concatenate([group.rows for group in groups])
    return replace(groups[0], rows=rows, pieces=tuple(p for one in groups for p in one.pieces))
