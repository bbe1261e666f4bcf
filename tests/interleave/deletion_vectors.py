"""Deletion vectors, as Spark writes them: delta-rs reads them, but has no way to write them."""

from __future__ import annotations

import json
import struct
import time
import zlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
"""Of Z85, in which the log has the name of the file."""
_MAGIC = 1681511377
_ROARING = 12346
"""Cookie of a bitmap that has only sorted arrays."""
_ROARING_WITH_RUNS = 12347
_PROTOCOL = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["deletionVectors"],
    }
}


def _encode(data: bytes) -> str:
    text = ""
    for (number,) in struct.iter_unpack(">I", data):
        digits = ""
        for _ in range(5):
            digits = _DIGITS[number % 85] + digits
            number //= 85
        text += digits
    return text


def _decode(text: str) -> bytes:
    data = b""
    for start in range(0, len(text), 5):
        number = 0
        for digit in text[start : start + 5]:
            number = number * 85 + _DIGITS.index(digit)
        data += struct.pack(">I", number)
    return data


def vector_id(vector: Mapping[str, Any] | None) -> str | None:
    """Return what tells the vectors of a data file apart; one file may have several vectors."""
    return None if vector is None else f"{vector['pathOrInlineDv']}@{vector['offset']}"


def vector_file(identity: str) -> str:
    """Return the path of the file that a vector is in, below the folder of the table."""
    path = identity.rpartition("@")[0]
    folder, encoded = path[:-20], path[-20:]
    name = f"deletion_vector_{UUID(bytes=_decode(encoded))}.bin"
    return f"{folder}/{name}" if folder else name


def write_vector(table: Path, places: Collection[int]) -> dict[str, Any]:
    """Write the places of deleted rows to a file, and return its description for the log."""
    ordered = sorted(places)
    bitmap = struct.pack("<IIHHI", _ROARING, 1, 0, len(ordered) - 1, 16)
    bitmap += struct.pack(f"<{len(ordered)}H", *ordered)
    data = struct.pack("<IQI", _MAGIC, 1, 0) + bitmap
    file = uuid4()
    content = b"\x01" + struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data))
    (table / f"deletion_vector_{file}.bin").write_bytes(content)
    return {
        "storageType": "u",
        "pathOrInlineDv": _encode(file.bytes),
        "offset": 1,
        "sizeInBytes": len(data),
        "cardinality": len(ordered),
    }


def read_vector(table: Path, vector: Mapping[str, Any] | None) -> set[int]:
    """Return the places of deleted rows, of which there are few."""
    identity = vector_id(vector)
    if vector is None or identity is None:
        return set()
    content = (table / vector_file(identity)).read_bytes()
    start = vector["offset"] + 4
    data = content[start : start + vector["sizeInBytes"]]
    magic, bitmaps, key = struct.unpack_from("<IQI", data)
    assert (magic, bitmaps, key) == (_MAGIC, 1, 0), "a vector of a large file"
    places = set(_places(data[16:]))
    assert len(places) == vector["cardinality"]
    return places


def _places(bitmap: bytes) -> Iterator[int]:
    """Yield the numbers of a bitmap of one container."""
    (cookie,) = struct.unpack_from("<I", bitmap)
    has_runs = cookie & 0xFFFF == _ROARING_WITH_RUNS
    at, start = (7, 9) if has_runs else (10, 16)
    if has_runs and bitmap[4]:
        (runs,) = struct.unpack_from("<H", bitmap, start)
        for run in range(runs):
            first, more = struct.unpack_from("<HH", bitmap, start + 2 + 4 * run)
            yield from range(first, first + more + 1)
    else:
        (more,) = struct.unpack_from("<H", bitmap, at)
        yield from struct.unpack_from(f"<{more + 1}H", bitmap, start)


def delete_rows(
    table: Path,
    version: int,
    add: Mapping[str, Any],
    places: Collection[int],
    has_feature: bool,
) -> None:
    """Commit a version in which one file lacks some more of its rows."""
    now = int(time.time() * 1000)
    before = add.get("deletionVector")
    vector = write_vector(table, {*places, *read_vector(table, before)})
    same = {"path": add["path"], "partitionValues": add["partitionValues"], "size": add["size"]}
    remove = {
        **same,
        "dataChange": True,
        "deletionTimestamp": now,
        "extendedFileMetadata": True,
        **({"deletionVector": before} if before else {}),
    }
    added = {
        **same,
        "modificationTime": add["modificationTime"],
        "dataChange": True,
        "stats": json.dumps({**json.loads(add["stats"]), "tightBounds": False}),
        "deletionVector": vector,
    }
    actions = [
        {"commitInfo": {"timestamp": now, "operation": "DELETE", "isBlindAppend": False}},
        *(() if has_feature else (_PROTOCOL,)),
        {"remove": remove},
        {"add": added},
    ]
    entry = table / "_delta_log" / f"{version:020d}.json"
    with entry.open("x") as file:
        file.write("\n".join(map(json.dumps, actions)))
