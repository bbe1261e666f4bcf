"""What a pipeline's ledger says; every view of it starts here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError, TableNotFoundError

from headgate.config import Pipeline
from headgate.errors import LandingError
from headgate.quarantine.ledger import name_in_ledger
from headgate.schema.changes import change_from_record

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def query_table(table: DeltaTable, sql: str) -> list[dict[str, Any]]:
    """The rows that a query over the table `stored` gives."""
    found = QueryBuilder().register("stored", table).execute(sql)
    rows = pa.RecordBatchReader.from_stream(found).read_all()
    columns = [_values(column) for column in rows.columns]
    return [dict(zip(rows.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def quoted(value: str) -> str:
    """A value as a literal of SQL; nothing in it can end the quotes."""
    return "'" + value.replace("'", "''") + "'"


def _values(column: pa.ChunkedArray) -> list[Any]:
    if not pa.types.is_timestamp(column.type):
        return list(column.to_pylist())
    # By hand, because pyarrow asks pandas about time zones.
    micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_pylist()
    return [None if each is None else _EPOCH + timedelta(microseconds=each) for each in micros]


class LedgerRows:
    """The pipeline's rows of the ledger as it was when it was opened."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._path = str(Path(pipeline.lake, pipeline.ledger))
        try:
            self._table: DeltaTable | None = DeltaTable(self._path)
        except TableNotFoundError:
            self._table = None
        except (DeltaError, OSError) as error:
            raise self._unreadable(error) from error

    def query(self, sql: str) -> list[dict[str, Any]]:
        """What a query gives; nothing where the pipeline was never run.

        `ledger` has what the stream did, `everything` what replays did as well.
        """
        if self._table is None:
            return []
        name, replays = self._pipeline.name, name_in_ledger(self._pipeline.name)
        both = f"SELECT * FROM stored WHERE pipeline IN ({quoted(name)}, {quoted(replays)})"
        mine = f"SELECT * FROM everything WHERE pipeline = {quoted(name)}"
        try:
            return query_table(
                self._table, f"WITH everything AS ({both}), ledger AS ({mine}) {sql}"
            )
        except (DeltaError, OSError, pa.ArrowException) as error:
            raise self._unreadable(error) from error

    @property
    def silver_only(self) -> str:
        """A condition that leaves out what the pipeline's own tables, such as bronze, got."""
        own = self._pipeline.own_tables.values()
        return f'"table" NOT IN ({", ".join(map(quoted, own))})'

    def _unreadable(self, error: Exception) -> LandingError:
        return LandingError(
            "lake-unreadable",
            f"the ledger cannot be read: {str(error).splitlines()[0]}",
            hint="check `lake`, and that you may read the folder",
            where=self._path,
        )


@dataclass(frozen=True)
class RecordedChange:
    """What happened to a table's columns, when, and because of which schemas."""

    table: str
    batch: int
    at: datetime
    change: str
    """The kind of change: `AddColumn`, `CreateTable`, …"""
    column: str
    outcome: str
    text: str
    schema_ids: tuple[int, ...]


def recorded_changes(ledger: LedgerRows, table: str | None = None) -> list[RecordedChange]:
    """The changes of one table or of all, the oldest first."""
    of_table = f'AND "table" = {quoted(table)}' if table is not None else ""
    rows = ledger.query(
        f"""
        SELECT "table", version, at, detail FROM everything
        WHERE kind = 'schema' {of_table} ORDER BY at, version, "table"
        """
    )
    return [_recorded_change(row) for row in rows]


def _recorded_change(row: Mapping[str, Any]) -> RecordedChange:
    detail: dict[str, Any] = json.loads(row["detail"])
    kind, column = str(detail["change"]), str(detail["column"])
    return RecordedChange(
        table=row["table"],
        batch=row["version"],
        at=row["at"],
        change=kind,
        column=column,
        outcome=str(detail["outcome"]),
        text=str(change_from_record(detail) or f"{kind} {column}"),
        schema_ids=tuple(detail.get("schema_ids", ())),
    )
