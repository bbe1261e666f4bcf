"""The place of a lineage in the list of lineages."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headgate.change.order.encoding import Part
from headgate.errors import UsageError

_WIDTH = 4


def epochs(lineages: Sequence[str]) -> dict[str, str]:
    """Each lineage as the part of an order."""
    if len(set(lineages)) < len(lineages) or len(lineages) > 10**_WIDTH:
        raise UsageError(
            "bad-argument",
            "the list of lineages names one twice or is too long",
            hint="A lineage stands in the list once, where it first took over.",
        )
    return {lineage: f"{place:0{_WIDTH}}" for place, lineage in enumerate(lineages)}


def epoch_part(lineages: pa.Array, known: dict[str, str]) -> Part:
    """The epoch of each change, given its lineage."""
    names, texts = pa.array(known.keys(), pa.string()), pa.array(known.values(), pa.string())
    return Part(
        texts.take(pc.index_in(lineages, value_set=names, skip_nulls=True)),
        pc.binary_join_element_wise("the lineage ", lineages, " is not in the list", ""),
    )
