"""What changes come to when they are applied in the order of the log."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import fastavro

from headgate.lab.shop.simulate import DatabaseModel

Tables = dict[str, list[dict[str, Any]]]
Record = dict[str, Any]


def read_records(files: Iterable[Path]) -> list[Record]:
    records: list[Any] = []
    for file in files:
        if file.suffix == ".avro":
            with file.open("rb") as stream:
                records += fastavro.reader(stream)
        else:
            records += map(json.loads, file.read_text("utf-8").splitlines())
    return records


def fold(records: Iterable[Record]) -> dict[str, dict[tuple[object, ...], Mapping[str, Any]]]:
    """Each change once, however often it came: the rows of each table by their keys."""
    tables: dict[str, dict[tuple[object, ...], Mapping[str, Any]]] = {}
    for record in sorted({each["uuid"]: each for each in records}.values(), key=_place):
        metadata, row = record["source_metadata"], record["payload"]
        rows = tables.setdefault(metadata["table"], {})
        key = tuple(row[name] for name in metadata["primary_keys"])
        if metadata["is_deleted"]:
            del rows[key]
        else:
            rows[key] = row
    return tables


def folded_like(model: DatabaseModel, records: Iterable[Record]) -> Tables:
    """The rows that changes come to, with the columns that the tables have in the end."""
    folded = fold(records)
    return {
        name: [
            {column.name: rows[key].get(column.name) for column in table.columns}
            for rows in [folded.get(name, {})]
            for key in sorted(rows)
        ]
        for name, table in model.tables.items()
    }


def rows_of(model: DatabaseModel) -> Tables:
    return {name: [dict(row) for row in table.rows] for name, table in model.tables.items()}


def _place(record: Record) -> tuple[bool, int, int, bool]:
    metadata = record["source_metadata"]
    logged = record["read_method"] == "mysql-cdc-binlog"
    file = int(metadata["log_file"].rpartition(".")[2]) if logged else 0
    return logged, file, metadata["log_position"], metadata["change_type"] != "UPDATE-DELETE"
