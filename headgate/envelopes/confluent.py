"""Confluent's framing: a schema id before the payload, or in a header of the record."""

from __future__ import annotations

import uuid
from collections import defaultdict
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.envelopes.opened import MessageKey, Opened, Rejected, split_by
from headgate.formats.decoder import FIRST_MESSAGE, ROOT_MESSAGE, MessageChoice, Refusal
from headgate.formats.decoders import Decoders
from headgate.reasons import Reason
from headgate.registry.registry import SchemaKey
from headgate.schema.names import is_nameable

MAX_INDEXES = 16
_MAX_VARINT = 5


def frame_prefix(schema_id: int) -> bytes:
    """Return what stands before a payload."""
    return b"\0" + schema_id.to_bytes(4, "big")


class BadIndex(Exception):
    """The bytes are not a list of message indexes."""


def read_message_index(data: bytes, start: int) -> tuple[tuple[int, ...], int]:
    """Return the indexes at `start`, and where the payload begins."""
    count, position = _read_zigzag(data, start)
    if count == 0:
        return (0,), position
    if not 0 < count <= MAX_INDEXES:
        raise BadIndex(f"{count} message indexes")
    indexes = []
    for _ in range(count):
        index, position = _read_zigzag(data, position)
        if index < 0:
            raise BadIndex(f"message index {index}")
        indexes.append(index)
    return tuple(indexes), position


def _read_zigzag(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(_MAX_VARINT):
        if position >= len(data):
            raise BadIndex("the record ends inside its message indexes")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
    raise BadIndex("a message index has more than five bytes")


_HEADER = "__value_schema_id"
_BY_ID, _BY_GUID = 0, 1
_PREFIX = {_BY_ID: 5, _BY_GUID: 17}
_MAX_INDEX_BYTES = 96
_END = (1 << 31) - 1
"""binary_slice fails without an end that it can multiply by the number of values."""


@dataclass(frozen=True)
class ConfluentEnvelope:
    """Opens framed records, routed by topic or by record type."""

    route_by: Literal["topic", "record"] = "topic"

    def open(self, records: pa.Table, decoders: Decoders) -> Opened:
        opened = Opened()
        values = records.column("value").combine_chunks()
        in_header = _header_ids(records.column("headers"))
        framed = _frames(values, in_header)
        frequent_first = sorted(framed, key=lambda frame: -len(frame[1]))
        decoders.fetch(key for key, _, _ in frequent_first if key is not None)
        topics = records.column("topic").combine_chunks()
        portions: dict[MessageKey, list[tuple[np.ndarray, pa.BinaryArray]]] = defaultdict(list)
        for key, rows, header in framed:
            if key is None:
                opened.rejected.extend(
                    Rejected(int(row), Reason.MAGIC_BYTE_WRONG, _first_bytes(values[int(row)]))
                    for row in rows
                )
            elif skipped := decoders.skipped(key):
                for row in map(int, rows):
                    route = topics[row].as_py()
                    rejected = Rejected(row, skipped.reason, skipped.detail, route, key)
                    opened.rejected.append(rejected)
            else:
                self._split_messages(key, header, rows, values, decoders, portions, opened)
        for message, parts in portions.items():
            rows = np.concatenate([rows for rows, _ in parts])
            payloads = pa.concat_arrays([payloads for _, payloads in parts])
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
        """Strip the prefix of the records of one schema; with protobuf it has the message index."""
        text = decoders.text(key)
        is_protobuf = not isinstance(text, Refusal) and text.schema_type == "PROTOBUF"
        prefix = _PREFIX[_BY_ID if isinstance(key, int) else _BY_GUID]
        mine = values.take(pa.array(rows))
        if header is not None:
            try:
                message = _message_in_header(header, prefix) if is_protobuf else FIRST_MESSAGE
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
        heads = pc.binary_slice(mine, prefix, prefix + _MAX_INDEX_BYTES)
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
                    opened.add(route, message, rows[positions], payloads, positions)
                else:
                    opened.rejected.extend(
                        Rejected(int(row), Reason.ROUTE_MISSING, "", None, message[0])
                        for row in rows[positions]
                    )
        else:
            opened.add(decoder.record_name, message, rows, payloads, np.arange(len(rows)))


def _frames(
    values: pa.BinaryArray, in_header: dict[int, bytes]
) -> list[tuple[SchemaKey | None, np.ndarray, bytes | None]]:
    """Return rows by schema: (key, rows, header with the key); key None if there is none."""
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
    """Return the schema ids in headers, where newer clients put them, by row."""
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


def _message_in_header(header: bytes, prefix: int) -> MessageChoice:
    """Read the message index of a header; without one, only the root message is possible."""
    return read_message_index(header, prefix)[0] if len(header) > prefix else ROOT_MESSAGE


def _first_bytes(value: pa.BinaryScalar) -> str:
    return f"begins with {value.as_py()[:8].hex(' ') or 'nothing'}"
