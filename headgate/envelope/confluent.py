"""Confluent's framing: a schema id before the payload, or in a header of the record."""

from __future__ import annotations

import uuid
from collections import defaultdict
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.envelope.message_index import BadIndex, read_message_index
from headgate.envelope.opened import Group, MessageKey, Opened, Rejected, split_by
from headgate.quarantine.reason import Reason
from headgate.route.safe_name import is_nameable
from headgate.schema.decoder import FIRST_MESSAGE, Refusal
from headgate.schema.decoders import Decoders
from headgate.schema.registry import SchemaKey

_HEADER = "__value_schema_id"
_BY_ID, _BY_GUID = 0, 1
_PREFIX = {_BY_ID: 5, _BY_GUID: 17}
_LONGEST_INDEX = 96
_END = (1 << 31) - 1
"""Arrow's binary_slice fails without an end that it can multiply by the number of values."""


@dataclass(frozen=True)
class ConfluentEnvelope:
    """Opens framed records; a table per topic, or per record type."""

    route_by: Literal["topic", "record"] = "topic"

    def open(self, records: pa.Table, decoders: Decoders) -> Opened:
        opened = Opened()
        values = records.column("value").combine_chunks()
        in_header = _header_ids(records.column("headers"))
        framed = _frames(values, in_header)
        decoders.fetch(key for key, _, _ in framed if key is not None)
        portions: dict[MessageKey, list[tuple[np.ndarray, pa.BinaryArray]]] = defaultdict(list)
        for key, rows, header in framed:
            if key is None:
                opened.rejected.extend(
                    Rejected(int(row), Reason.MAGIC_BYTE_WRONG, _first_bytes(values[int(row)]))
                    for row in rows
                )
            else:
                self._split_messages(key, header, rows, values, decoders, portions, opened)
        topics = records.column("topic").combine_chunks()
        for message, parts in portions.items():
            for rows, payloads in parts:
                self._route(message, rows, payloads, topics, decoders, opened)
        return opened

    def _split_messages(
        self,
        key: SchemaKey,
        header: bytes | None,
        rows: np.ndarray,
        values: pa.BinaryArray,
        decoders: Decoders,
        portions: dict[MessageKey, list[tuple[np.ndarray, pa.BinaryArray]]],
        opened: Opened,
    ) -> None:
        """Take the prefix off the records of one schema; protobuf's says which message it is."""
        text = decoders.text(key)
        is_protobuf = not isinstance(text, Refusal) and text.kind == "PROTOBUF"
        prefix = _PREFIX[_BY_ID if isinstance(key, int) else _BY_GUID]
        mine = values.take(pa.array(rows))
        if header is not None:
            try:
                message = read_message_index(header, prefix)[0] if is_protobuf else FIRST_MESSAGE
            except BadIndex as error:
                opened.rejected.extend(
                    Rejected(int(row), Reason.MESSAGE_INDEX_WRONG, str(error), schema_key=key)
                    for row in rows
                )
                return
            portions[key, message].append((rows, mine))
            return
        if not is_protobuf:
            portions[key, FIRST_MESSAGE].append((rows, pc.binary_slice(mine, prefix, _END)))
            return
        heads = pc.binary_slice(mine, prefix, prefix + _LONGEST_INDEX)
        simple = pc.equal(pc.binary_slice(heads, 0, 1), b"\0").to_numpy(zero_copy_only=False)
        at = np.flatnonzero(simple)
        if len(at):
            payloads = pc.binary_slice(mine.take(pa.array(at)), prefix + 1, _END)
            portions[key, FIRST_MESSAGE].append((rows[at], payloads))
        by_start: dict[tuple[tuple[int, ...], int], list[int]] = defaultdict(list)
        for position in np.flatnonzero(~simple):
            try:
                by_start[read_message_index(heads[int(position)].as_py(), 0)].append(int(position))
            except BadIndex as error:
                opened.rejected.append(
                    Rejected(
                        int(rows[position]), Reason.MESSAGE_INDEX_WRONG, str(error), schema_key=key
                    )
                )
        for (message, start), positions in by_start.items():
            payloads = pc.binary_slice(mine.take(pa.array(positions)), prefix + start, _END)
            portions[key, message].append((rows[positions], payloads))

    def _route(
        self,
        message: MessageKey,
        rows: np.ndarray,
        payloads: pa.BinaryArray,
        topics: pa.StringArray,
        decoders: Decoders,
        opened: Opened,
    ) -> None:
        decoder = decoders.decoder(*message)
        if isinstance(decoder, Refusal) or self.route_by == "topic":
            topic = topics.take(pa.array(rows)).fill_null("").dictionary_encode()
            names = topic.dictionary.to_pylist()
            codes = topic.indices.to_numpy(zero_copy_only=False)
            for positions in split_by(codes):
                route = names[codes[positions[0]]]
                if is_nameable(route):
                    part = payloads.take(pa.array(positions))
                    opened.groups.append(Group(route, message, rows[positions], (part,)))
                else:
                    opened.rejected.extend(
                        Rejected(int(row), Reason.ROUTE_MISSING, "", None, message[0])
                        for row in rows[positions]
                    )
        else:
            opened.groups.append(Group(decoder.record_name, message, rows, (payloads,)))


def _frames(
    values: pa.BinaryArray, in_header: dict[int, bytes]
) -> list[tuple[SchemaKey | None, np.ndarray, bytes | None]]:
    """Rows by schema: (key, rows, the header that named it); key None where nothing does."""
    frames: list[tuple[SchemaKey | None, np.ndarray, bytes | None]] = []
    by_header: dict[bytes, list[int]] = defaultdict(list)
    for row, header in in_header.items():
        by_header[header].append(row)
    for header, rows in by_header.items():
        frames.append((_key(header), np.array(sorted(rows)), header))
    others = np.setdiff1d(np.arange(len(values)), np.fromiter(in_header, np.int64))
    prefixes = pc.binary_slice(values.take(pa.array(others)), 0, _PREFIX[_BY_ID])
    encoded = prefixes.dictionary_encode()
    keys = [_key(prefix) for prefix in encoded.dictionary.to_pylist()]
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    for positions in split_by(codes):
        prefix = encoded.dictionary[int(codes[positions[0]])].as_py()
        if prefix[:1] == bytes([_BY_GUID]):
            by_guid: dict[SchemaKey | None, list[int]] = defaultdict(list)
            for row in others[positions]:
                by_guid[_key(values[int(row)].as_py()[: _PREFIX[_BY_GUID]])].append(int(row))
            frames.extend((key, np.array(rows), None) for key, rows in by_guid.items())
        else:
            frames.append((keys[codes[positions[0]]], others[positions], None))
    return frames


def _key(prefix: bytes) -> SchemaKey | None:
    if len(prefix) >= _PREFIX[_BY_ID] and prefix[0] == _BY_ID:
        return int.from_bytes(prefix[1:5], "big")
    if len(prefix) >= _PREFIX[_BY_GUID] and prefix[0] == _BY_GUID:
        return str(uuid.UUID(bytes=prefix[1:17]))
    return None


def _header_ids(headers: pa.ChunkedArray) -> dict[int, bytes]:
    """The schema id that newer clients put in a header, by row."""
    column = headers.combine_chunks()
    if column.null_count == len(column):
        return {}
    flat = column.flatten()
    hits = pc.equal(flat.field("key"), _HEADER).fill_null(False).to_numpy(zero_copy_only=False)
    rows = pc.list_parent_indices(column).to_numpy(zero_copy_only=False)
    found = {}
    for position in np.flatnonzero(hits)[::-1]:
        value = flat.field("value")[int(position)].as_py()
        if value is not None:
            found[int(rows[position])] = value
    return found


def _first_bytes(value: pa.BinaryScalar) -> str:
    return f"begins with {value.as_py()[:8].hex(' ') or 'nothing'}"
