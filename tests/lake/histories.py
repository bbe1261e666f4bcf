"""Histories of a table as any writer of Delta may leave them, and the rows of each version.

Entries of the log are written here, because delta-rs writes no deletion vectors; checkpoints are
delta-rs's.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID, uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder, write_deltalake

Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_FEATURES = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["deletionVectors", "changeDataFeed"],
    }
}


@dataclass(frozen=True)
class LiveFile:
    """A data file of a version, and the deletion vector that it has there."""

    path: str
    size: int
    rows: tuple[int, ...]
    deleted: frozenset[int] = frozenset()
    vector: Mapping[str, Any] | None = None
    vector_file: str | None = None

    @property
    def left(self) -> list[int]:
        return [row for place, row in enumerate(self.rows) if place not in self.deleted]

    def action(self, **more: Any) -> dict[str, Any]:
        vector = {} if self.vector is None else {"deletionVector": self.vector}
        return {"path": self.path, "partitionValues": {}, "size": self.size, **vector, **more}


@dataclass(frozen=True)
class Version:
    """What a version has, and the files with the changes of its commit."""

    files: Mapping[str, LiveFile] = field(default_factory=dict)
    changes: tuple[str, ...] = ()

    @property
    def rows(self) -> list[int]:
        return sorted(row for file in self.files.values() for row in file.left)

    @property
    def needed(self) -> set[str]:
        """Paths of all files that the version needs."""
        vectors = {file.vector_file for file in self.files.values() if file.vector_file}
        return {*self.files, *vectors, *self.changes}


class History:
    """A table that grows by commits of all kinds."""

    def __init__(self, folder: Path, random: Random) -> None:
        self.folder = folder
        self.random = random
        self.versions: list[Version] = []
        self._next = 0
        write_deltalake(folder, pa.table({"n": pa.array([], pa.int64())}))
        self.versions.append(Version())
        self._write([_FEATURES], Version())

    @property
    def newest(self) -> Version:
        return self.versions[-1]

    def grow(self) -> None:
        """Commit once, in one of the ways that Delta has."""
        ways: list[Callable[[], None]] = [
            *(self.append, self.append, self.append, self.delete, self.delete, self.optimize),
            *(self.update, self.restore, self.overwrite, self.purge),
        ]
        self.random.choice(ways)()
        if self.random.random() < 0.3:
            DeltaTable(self.folder).create_checkpoint()

    def append(self) -> None:
        self._change(add=[self._new_file(self.random.randint(1, 6))])

    def delete(self) -> None:
        """Delete rows as Spark does, by deletion vectors; some rows for the second time."""
        chosen = [file for file in self.newest.files.values() if len(file.left) > 1]
        if chosen:
            file = self.random.choice(chosen)
            place = self.random.choice(range(len(file.rows)))
            self._change(remove=[file], add=[self._with_vector(file, {*file.deleted, place})])

    def update(self) -> None:
        """Rewrite a file, and record the changes for a feed."""
        for file in self._some(1):
            changes = f"_change_data/cdc-00000-{uuid4()}.c000.snappy.parquet"
            pq.write_table(pa.table({"n": [1]}), self._created(changes))
            self._change(remove=[file], add=[self._of(file.left)], changes=(changes,))

    def optimize(self) -> None:
        """Combine files into one; rows stay."""
        files = self._some(3)
        rows = [row for file in files for row in file.left]
        if len(files) > 1:
            self._change(remove=files, add=[self._of(rows)], data_change=False)

    def purge(self) -> None:
        """Rewrite all files with deletion vectors, as REORG does."""
        files = [file for file in self.newest.files.values() if file.vector]
        self._change(remove=files, add=[self._of(file.left) for file in files], data_change=False)

    def restore(self) -> None:
        """Return to a version that can still be read."""
        before = self.random.randint(self.oldest, len(self.versions) - 1)
        wanted = self.versions[before]
        remove = [
            file for file in self.newest.files.values() if file != wanted.files.get(file.path)
        ]
        add = [file for file in wanted.files.values() if file != self.newest.files.get(file.path)]
        self._change(remove=remove, add=add)

    def overwrite(self) -> None:
        self._change(remove=[*self.newest.files.values()], add=[self._new_file(2)])

    @property
    def oldest(self) -> int:
        """The oldest version that can be read: the first with a checkpoint, or the first of all."""
        names = os.listdir(self.folder / "_delta_log")
        entries = [int(name[:20]) for name in names if name.endswith(".json") and name[0] == "0"]
        points = [int(name[:20]) for name in names if name.endswith(".checkpoint.parquet")]
        return 0 if min(entries) == 0 else min(points)

    def assert_readable(self, since: int) -> None:
        """Assert that all versions from one on have their rows, and can read their changes."""
        for number in range(since, len(self.versions)):
            version = self.versions[number]
            missing = {path for path in version.needed if not (self.folder / path).exists()}
            assert missing == set(), number
            table = DeltaTable(self.folder, version=number)
            assert sorted(_rows(table)) == version.rows, number

    def _some(self, most: int) -> list[LiveFile]:
        files = [file for file in self.newest.files.values() if file.left]
        return self.random.sample(files, min(len(files), most))

    def _new_file(self, count: int) -> LiveFile:
        self._next += count
        return self._of([*range(self._next - count, self._next)])

    def _of(self, rows: list[int]) -> LiveFile:
        folder = self.random.choice(["", "", "q7/"])
        path = f"{folder}part-00000-{uuid4()}-c000.snappy.parquet"
        pq.write_table(pa.table({"n": pa.array(rows, pa.int64())}), self._created(path))
        return LiveFile(path, (self.folder / path).stat().st_size, tuple(rows))

    def _with_vector(self, file: LiveFile, deleted: set[int]) -> LiveFile:
        prefix = self.random.choice(["", "", "x4"])
        number, bitmap = uuid4(), _bitmap(sorted(deleted))
        path = f"{prefix and prefix + '/'}deletion_vector_{number}.bin"
        checksum = struct.pack(">I", zlib.crc32(bitmap))
        content = b"\x01" + struct.pack(">I", len(bitmap)) + bitmap + checksum
        self._created(path).write_bytes(content)
        vector = {
            "storageType": "u",
            "pathOrInlineDv": prefix + _z85(number),
            "offset": 1,
            "sizeInBytes": len(bitmap),
            "cardinality": len(deleted),
        }
        return replace(file, deleted=frozenset(deleted), vector=vector, vector_file=path)

    def _change(
        self,
        add: list[LiveFile],
        remove: list[LiveFile] | tuple[()] = (),
        changes: tuple[str, ...] = (),
        data_change: bool = True,
    ) -> None:
        if not add and not remove:
            return
        files = dict(self.newest.files)
        actions: list[dict[str, Any]] = []
        for file in remove:
            del files[file.path]
            gone = file.action(deletionTimestamp=0, dataChange=data_change)
            actions.append({"remove": {**gone, "extendedFileMetadata": True}})
        for file in add:
            files[file.path] = file
            stats = json.dumps({"numRecords": len(file.rows), "tightBounds": False})
            added = file.action(modificationTime=0, dataChange=data_change, stats=stats)
            actions.append({"add": added})
        for path in changes:
            change = {"path": path, "partitionValues": {}, "size": 1, "dataChange": False}
            actions.append({"cdc": change})
        self._write(actions, Version(files, changes))

    def _write(self, actions: list[dict[str, Any]], version: Version) -> None:
        entry = self.folder / "_delta_log" / f"{len(self.versions):020d}.json"
        lines = [{"commitInfo": {"timestamp": 0, "operation": "WRITE"}}, *actions]
        entry.write_text("\n".join(map(json.dumps, lines)))
        self.versions.append(version)

    def _created(self, path: str) -> Path:
        file = self.folder / path
        file.parent.mkdir(exist_ok=True)
        return file


def _rows(table: DeltaTable) -> list[int]:
    found = QueryBuilder().register("t", table).execute("SELECT n FROM t")
    return list(pa.RecordBatchReader.from_stream(found).read_all()["n"].to_pylist())


def _z85(number: UUID) -> str:
    encoded = ""
    for start in range(0, 16, 4):
        value = int.from_bytes(number.bytes[start : start + 4], "big")
        digits = ""
        for _ in range(5):
            value, digit = divmod(value, 85)
            digits = Z85[digit] + digits
        encoded += digits
    return encoded


def _bitmap(rows: list[int]) -> bytes:
    """Return row numbers as a Roaring bitmap array of one container, in Delta's form."""
    container = b"".join(struct.pack("<H", row) for row in rows)
    header = struct.pack("<II", 12346, 1) + struct.pack("<HH", 0, len(rows) - 1)
    bitmap = header + struct.pack("<I", 16) + container
    return struct.pack("<IQI", 1681511377, 1, 0) + bitmap
