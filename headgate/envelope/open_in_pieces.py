"""Many records opened: a piece at a time, with one group for what all pieces have of it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pyarrow as pa

from headgate.envelope.opened import Envelope, Group, MessageKey, Opened
from headgate.schema.decoders import Decoders


def open_in_pieces(envelope: Envelope, records: pa.Table, decoders: Decoders) -> Opened:
    """The chunks of a table are the pieces: they should be no larger than caches are.

    No two groups have both route and message in common.
    """
    parts: dict[tuple[str, MessageKey], list[Group]] = defaultdict(list)
    whole, start = Opened(), 0
    for piece in records.to_batches():
        opened = envelope.open(pa.Table.from_batches([piece]), decoders)
        whole.rejected += [replace(one, row=one.row + start) for one in opened.rejected]
        for group in opened.groups:
            parts[group.route, group.message].append(replace(group, rows=group.rows + start))
        start += len(piece)
    for (route, message), groups in parts.items():
        rows = np.concatenate([group.rows for group in groups])
        pieces = tuple(piece for group in groups for piece in group.pieces)
        whole.groups.append(Group(route, message, rows, pieces))
    return whole
