"""Small groups decoded together: a call costs more than the few records that it is made for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from headgate.envelope.opened import Group
from headgate.schema.decoder import Decoded
from headgate.schema.decoders import Decoders
from headgate.schema.protobuf import ProtobufDecoder

_FEW = 20_000
"""A group of so many records is worth a call of its own."""

GroupToDecode = tuple[Group, ProtobufDecoder]

DecodedAhead = Mapping[Group, Decoded]


def decode_ahead(groups: Iterable[Group], decoders: Decoders) -> DecodedAhead:
    """Those whose schemas differ in the names of columns alone, as those of many tables do.

    Groups of which any payload needs a closer look are left out: they are decoded one by one.
    """
    found: dict[Group, Decoded] = {}
    for several in _alike(groups, decoders):
        payloads = pa.concat_arrays([piece for group, _ in several for piece in group.pieces])
        arrays = several[0][1].decode_exact(payloads) if len(several) > 1 else None
        if arrays is None:
            continue
        start = 0
        for group, decoder in several:
            mine = [array.slice(start, len(group.rows)) for array in arrays]
            columns = pa.RecordBatch.from_arrays(mine, schema=decoder.schema)
            found[group] = Decoded(columns, {})
            start += len(group.rows)
    return found


def _alike(groups: Iterable[Group], decoders: Decoders) -> list[list[GroupToDecode]]:
    alike: list[list[GroupToDecode]] = []
    for group in groups:
        decoder = decoders.decoder(*group.message)
        if not isinstance(decoder, ProtobufDecoder) or len(group.rows) >= _FEW:
            continue
        mine = next((one for one in alike if one[0][1].is_like(decoder)), None)
        if mine is None:
            alike.append([(group, decoder)])
        else:
            mine.append((group, decoder))
    return alike
