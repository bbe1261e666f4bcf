"""Changes as files in a folder, laid out and named as Datastream does it."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal
from uuid import UUID

import fastavro

from headgate.simulate.shop.change import Change
from headgate.simulate.shop.datastream_record import (
    change_uuid,
    datastream_record,
    json_record,
    object_name,
    read_method,
)
from headgate.simulate.shop.datastream_schema import datastream_schema, schema_key

FileFormat = Literal["avro", "json"]

FILE_NAME = re.compile(
    r"[0-9a-f]{40}_mysql-(?:cdc-binlog|backfill-fulldump)_\d+_\d+_\d+\.(?:avro|jsonl)"
)
"""What the files that are written here are called."""

_ENDINGS: dict[FileFormat, str] = {"avro": "avro", "json": "jsonl"}


@dataclass(frozen=True)
class FileOptions:
    """How changes are spread over files."""

    format: FileFormat = "avro"
    changes_per_file: int = 1_000
    """A minute or a schema with more changes has several files."""
    writers: int = 1
    """Files written side by side: a minute's changes are dealt out to them at random."""
    shuffled: bool = False
    """Whether files appear in another order than that of their changes."""
    duplicates: float = 0.0
    """The share of files that come twice, under two names."""
    seed: int = 0


def write_changes(
    changes: Iterable[Change], root: Path, options: FileOptions | None = None
) -> list[Path]:
    """Write them all; the files are whole as soon as they have their names."""
    options = options or FileOptions()
    random = Random(options.seed)
    files = []
    for together in _files(changes, options, random):
        twice = options.duplicates and random.random() < options.duplicates
        files += [(together, copy) for copy in range(2 if twice else 1)]
    if options.shuffled:
        random.shuffle(files)
    return [_write(together, root, options, copy) for together, copy in files]


def _files(
    changes: Iterable[Change], options: FileOptions, random: Random
) -> Iterator[list[Change]]:
    """Changes of one table, schema, minute and way of reading, in the order in which they came."""
    groups: defaultdict[tuple[object, ...], list[Change]] = defaultdict(list)
    for change in changes:
        writer = random.randrange(options.writers) if options.writers > 1 else 0
        minute = change.at.replace(second=0, microsecond=0)
        table = (change.database, change.table, change.columns)
        groups[minute, table, change.backfill, writer].append(change)
    for group in groups.values():
        for first in range(0, len(group), options.changes_per_file):
            yield group[first : first + options.changes_per_file]


def _write(changes: Sequence[Change], root: Path, options: FileOptions, copy: int) -> Path:
    first = changes[0]
    folder = root / object_name(first) / f"{first.at:%Y/%m/%d/%H/%M}"
    name = ".".join((_name(changes, options.seed, copy), _ENDINGS[options.format]))
    content = (_avro if options.format == "avro" else _json_lines)(changes, options.seed)
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f".{name}"
    unfinished.write_bytes(content)
    path = folder / name
    os.replace(unfinished, path)
    return path


def _name(changes: Sequence[Change], seed: int, copy: int) -> str:
    """The schema, how it was read, and numbers that no other file has."""
    first = changes[0]
    schema = schema_key(object_name(first), first.columns)
    number = UUID(change_uuid(first, seed)).int >> 64
    return f"{schema}_{read_method(first)}_{number}_{len(changes)}_{copy}"


def _avro(changes: Sequence[Change], seed: int) -> bytes:
    first = changes[0]
    stream = io.BytesIO()
    records = [datastream_record(change, seed) for change in changes]
    fastavro.writer(
        stream,
        fastavro.parse_schema(datastream_schema(object_name(first), first.columns)),
        records,
        # Else it is random, and the same plan would not give the same bytes.
        sync_marker=hashlib.md5(records[0]["uuid"].encode(), usedforsecurity=False).digest(),
    )
    return stream.getvalue()


def _json_lines(changes: Sequence[Change], seed: int) -> bytes:
    lines = (json.dumps(json_record(change, seed), ensure_ascii=False) for change in changes)
    return "".join(f"{line}\n" for line in lines).encode()
