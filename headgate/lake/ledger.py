"""The ledger: one row per table per batch and one per schema change, written last in each batch.

Everything that was landed can be told from it: how far the pipeline got, which version of which
table belongs together, what waits to be committed, and what a table's columns went through.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from headgate.lake.staged import StagedFile
from headgate.lake.tables import open_table

LEDGER = pa.schema(
    [
        pa.field("pipeline", pa.string()),
        pa.field("kind", pa.string()),
        pa.field("version", pa.int64()),
        pa.field("batch", pa.int64()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("table", pa.string()),
        pa.field("route", pa.string()),
        pa.field("rows", pa.int64()),
        pa.field("bytes", pa.int64()),
        pa.field("files", pa.int32()),
        pa.field("table_version", pa.int64()),
        pa.field("detail", pa.string()),
    ]
)


class Kind(StrEnum):
    """What a row of the ledger tells."""

    START = "start"  # a checkpoint was taken up; `version` is that of its batch 0
    TABLE = "table"  # a table got rows
    SCHEMA = "schema"  # a table's columns changed
    PENDING = "pending"  # a table could not be committed; `detail` has one of its files
    BATCH = "batch"  # a batch is complete; `detail` has where in the source it starts and ends
    GOLD = "gold"  # a derived table followed its sources
    MERGED = "merged"  # a merged or history table followed its change log
    EXPECTATION = "expectation"  # rows of a table were checked by a rule; `rows` broke it
    SETTLED = "settled"  # records left the quarantine; `detail` says how, and which were meant


@dataclass(frozen=True)
class Entry:
    """One row, but for what the ledger itself knows."""

    kind: Kind
    table: str | None = None
    route: str | None = None
    rows: int | None = None
    bytes: int | None = None
    files: int | None = None
    table_version: int | None = None
    detail: Any = None


@dataclass(frozen=True)
class Pending:
    """A file that waits for its table to become writable."""

    version: int
    file: StagedFile


@dataclass(frozen=True)
class Progress:
    """How far a pipeline got, by its ledger."""

    query_id: str
    first_version: int
    """The version of batch 0 of the checkpoint."""
    landed: int | None
    """The newest complete version."""
    ended_at: Any
    """Where the source ends in it."""
    pending: tuple[Pending, ...]


class Ledger:
    """Reads and writes the ledger of one pipeline."""

    def __init__(self, lake: str, name: str, pipeline: str) -> None:
        self._path = str(Path(lake, name))
        self._pipeline = pipeline
        self.app = f"headgate:{pipeline}"

    def landed(self) -> int | None:
        table = self._open()
        return table.transaction_version(self.app) if table else None

    def progress(self) -> Progress | None:
        """None for a pipeline that was never run on this lake."""
        table = self._open()
        if table is None:
            return None
        starts = self.rows([Kind.START])
        if not starts:
            return None
        start = max(starts, key=lambda row: (row["version"], row["at"]))
        landed = table.transaction_version(self.app)
        newest = [] if landed is None else self.rows([Kind.BATCH, Kind.PENDING], since=landed)
        extents = [json.loads(row["detail"]) for row in newest if row["kind"] == Kind.BATCH]
        return Progress(
            query_id=json.loads(start["detail"])["query_id"],
            first_version=start["version"],
            landed=landed,
            ended_at=extents[-1]["to"] if extents else None,
            pending=_pending(newest),
        )

    def start(self, query_id: str, first_version: int) -> None:
        """Take up a checkpoint whose batch 0 shall have this version."""
        self._append([Entry(Kind.START, detail={"query_id": query_id})], first_version, 0)

    def table_versions(self) -> dict[str, int]:
        """The version that each table had after its last batch."""
        rows = self.rows([Kind.TABLE])
        return {row["table"]: row["table_version"] for row in rows}

    def complete(self, version: int, batch: int, entries: Sequence[Entry]) -> None:
        """The last commit of a batch: with it, the batch is landed."""
        mark = CommitProperties(app_transactions=[Transaction(self.app, version)])
        self._append(entries, version, batch, mark)

    def add(self, version: int, entries: Sequence[Entry]) -> None:
        """What happened after a batch was complete."""
        self._append(entries, version, version)

    def rows(
        self, kinds: Iterable[Kind], table: str | None = None, since: int | None = None
    ) -> list[dict[str, Any]]:
        opened = self._open()
        if opened is None:
            return []
        filters: list[tuple[str, str, Any]] = [
            ("pipeline", "=", self._pipeline),
            ("kind", "in", [kind.value for kind in kinds]),
        ]
        if table is not None:
            filters.append(("table", "=", table))
        if since is not None:
            filters.append(("version", ">=", since))
        found = opened.to_pyarrow_table(filters=filters).sort_by([("version", "ascending")])
        return list(found.to_pylist())

    def _append(
        self,
        entries: Sequence[Entry],
        version: int,
        batch: int,
        mark: CommitProperties | None = None,
    ) -> None:
        now = datetime.now(UTC)
        records = [
            {
                "pipeline": self._pipeline,
                "kind": entry.kind.value,
                "version": version,
                "batch": batch,
                "at": now,
                "table": entry.table,
                "route": entry.route,
                "rows": entry.rows,
                "bytes": entry.bytes,
                "files": entry.files,
                "table_version": entry.table_version,
                "detail": None if entry.detail is None else json.dumps(entry.detail),
            }
            for entry in entries
        ]
        rows = pa.Table.from_pylist(records, LEDGER)
        write_deltalake(self._path, rows, mode="append", commit_properties=mark)

    def _open(self) -> DeltaTable | None:
        return open_table(self._path)


def schema_rows(*ledgers: Ledger) -> list[dict[str, Any]]:
    """What all of these tell of changes: those of a stream, and those of its replays."""
    return [row for ledger in ledgers for row in ledger.rows([Kind.SCHEMA])]


def _pending(rows: Iterable[dict[str, Any]]) -> tuple[Pending, ...]:
    """Each file once, however often the ledger says that it waits."""
    waiting: dict[tuple[str, str], Pending] = {}
    for row in rows:
        if row["kind"] == Kind.PENDING:
            detail = json.loads(row["detail"])
            file = StagedFile.from_json(detail["file"])
            waiting[file.table, file.path] = Pending(int(detail["version"]), file)
    return tuple(waiting.values())
