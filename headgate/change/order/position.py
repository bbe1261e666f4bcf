"""Where changes stand in the log of their source."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from headgate.change.order.encoding import Part


@dataclass(frozen=True)
class Positions:
    """Of some changes: the lineage in which each position counts, and the position's parts."""

    lineages: pa.Array
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class TypedPosition:
    """A position that a person gave: its lineage, and the beginning of all orders there."""

    lineage: str
    text: str
