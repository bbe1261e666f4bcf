"""Write change files with the layout and names that Datastream uses."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any, Literal
from uuid import NAMESPACE_URL, UUID, uuid5

from headgate.lab import require_lab
from headgate.lab.shop.statement import Change, Column

_MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
_SOURCE_METADATA = {
    "type": "record",
    "name": "source_metadata",
    "fields": [
        {"name": "table", "type": "string"},
        {"name": "database", "type": "string"},
        {"name": "primary_keys", "type": ["null", {"type": "array", "items": "string"}]},
        {"name": "log_file", "type": ["null", "string"]},
        {"name": "log_position", "type": ["null", "long"]},
        {"name": "change_type", "type": ["null", "string"]},
        {"name": "is_deleted", "type": ["null", "boolean"]},
    ],
}


@lru_cache(maxsize=1_000)
def datastream_schema(object_name: str, columns: tuple[Column, ...]) -> dict[str, Any]:
    """Return the Avro schema of an object's change records; every column is nullable."""
    payload = [{"name": each.name, "type": ["null", _type(each)]} for each in columns]
    return {
        "type": "record",
        "name": re.sub(r"\W", "_", object_name, flags=re.ASCII),
        "fields": [
            {"name": "uuid", "type": "string"},
            {"name": "read_timestamp", "type": _MILLIS},
            {"name": "source_timestamp", "type": _MILLIS},
            {"name": "object", "type": "string"},
            {"name": "read_method", "type": "string"},
            {"name": "stream_name", "type": "string"},
            {"name": "schema_key", "type": "string"},
            {"name": "sort_keys", "type": {"type": "array", "items": ["string", "long"]}},
            {"name": "source_metadata", "type": _SOURCE_METADATA},
            {
                "name": "payload",
                "type": {"type": "record", "name": "payload", "fields": payload},
            },
        ],
    }


@lru_cache(maxsize=1_000)
def schema_key(object_name: str, columns: tuple[Column, ...]) -> str:
    """Return the hash that identifies a schema in records and file names."""
    text = json.dumps(datastream_schema(object_name, columns), sort_keys=True)
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def _type(column: Column) -> str | dict[str, object]:
    match column.kind:
        case "int" | "boolean" | "double":
            return column.kind
        case "bigint":
            return "long"
        case "text":
            return "string"
        case "varchar":
            return {"type": "string", "logicalType": "varchar", "length": column.length}
        case "json":
            return {"type": "string", "logicalType": "json"}
        case "date":
            return {"type": "int", "logicalType": "date"}
        case "timestamp":
            return {"type": "long", "logicalType": "timestamp-micros"}
        case "decimal":
            return {
                "type": "bytes",
                "logicalType": "decimal",
                "precision": column.precision,
                "scale": column.scale or 0,
            }


_STREAM = "projects/headgate/locations/here/streams/shop"
_READ_AFTER = timedelta(seconds=5)


def datastream_record(change: Change, seed: int) -> dict[str, Any]:
    """Return the record for Avro: its own timestamps are in milliseconds."""
    millis = _millis(change.at)
    return {
        "uuid": change_uuid(change, seed),
        "read_timestamp": _millis(change.at + _READ_AFTER),
        "source_timestamp": millis,
        "object": object_name(change),
        "read_method": read_method(change),
        "stream_name": _STREAM,
        "schema_key": schema_key(object_name(change), change.columns),
        "sort_keys": [millis, change.log_file, change.log_position],
        "source_metadata": {
            "table": change.table,
            "database": change.database,
            "primary_keys": list(change.primary_key),
            "log_file": change.log_file,
            "log_position": change.log_position,
            "change_type": change.kind,
            "is_deleted": change.is_deleted,
        },
        "payload": change.values,
    }


def json_record(change: Change, seed: int) -> dict[str, Any]:
    """Return the record for JSON: timestamps and dates are ISO 8601 strings, decimals numbers."""
    record = datastream_record(change, seed)
    record["read_timestamp"] = _iso(change.at + _READ_AFTER)
    record["source_timestamp"] = _iso(change.at)
    record["payload"] = _plain(change.values)
    return record


def change_uuid(change: Change, seed: int) -> str:
    """Return the id of a change, the same in every file that contains it."""
    key = change.key if change.primary_key else tuple(change.values.values())
    place = (seed, change.database, change.table, change.log_file, change.log_position)
    return str(uuid5(NAMESPACE_URL, repr((place, _millis(change.at), change.kind, key))))


def object_name(change: Change) -> str:
    return f"{change.database}_{change.table}"


def read_method(change: Change) -> str:
    return "mysql-backfill-fulldump" if change.backfill else "mysql-cdc-binlog"


def _plain(values: Mapping[str, object]) -> dict[str, object]:
    plain: dict[str, object] = {}
    for name, value in values.items():
        match value:
            case datetime():
                plain[name] = _iso(value)
            case date():
                plain[name] = value.isoformat()
            case Decimal():
                plain[name] = float(value)
            case _:
                plain[name] = value
    return plain


def _iso(time: datetime) -> str:
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _millis(time: datetime) -> int:
    return round(time.timestamp() * 1_000)


FileFormat = Literal["avro", "json"]

FILE_NAME = re.compile(
    r"[0-9a-f]{40}_mysql-(?:cdc-binlog|backfill-fulldump)_\d+_\d+_\d+\.(?:avro|jsonl)"
)
"""Names of the files written here."""

_ENDINGS: dict[FileFormat, str] = {"avro": "avro", "json": "jsonl"}


@dataclass(frozen=True)
class FileOptions:
    """How changes are distributed over files."""

    format: FileFormat = "avro"
    changes_per_file: int = 1_000
    """Maximum changes per file; a minute with more has several files per schema."""
    writers: int = 1
    """Parallel files per minute; changes are assigned to them at random."""
    shuffled: bool = False
    """Whether files appear in a random order."""
    duplicates: float = 0.0
    """Fraction of files written twice, under two names."""
    seed: int = 0


def write_changes(
    changes: Iterable[Change], root: Path, options: FileOptions | None = None
) -> list[Path]:
    """Write all changes; each file is renamed to its final name once it is complete."""
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
    """Group changes by table, schema, minute and read method, in their order."""
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
    """Return a unique file name with the schema and the read method."""
    first = changes[0]
    schema = schema_key(object_name(first), first.columns)
    number = UUID(change_uuid(first, seed)).int >> 64
    return f"{schema}_{read_method(first)}_{number}_{len(changes)}_{copy}"


def _avro(changes: Sequence[Change], seed: int) -> bytes:
    require_lab("fastavro")
    import fastavro

    first = changes[0]
    stream = io.BytesIO()
    records = [datastream_record(change, seed) for change in changes]
    fastavro.writer(
        stream,
        fastavro.parse_schema(datastream_schema(object_name(first), first.columns)),
        records,
        # Random by default; the same plan must give the same bytes.
        sync_marker=hashlib.md5(records[0]["uuid"].encode(), usedforsecurity=False).digest(),
    )
    return stream.getvalue()


def _json_lines(changes: Sequence[Change], seed: int) -> bytes:
    lines = (json.dumps(json_record(change, seed), ensure_ascii=False) for change in changes)
    return "".join(f"{line}\n" for line in lines).encode()
