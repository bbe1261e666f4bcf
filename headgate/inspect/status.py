"""How a pipeline stands: what it has landed, what waits, and whether it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from headgate.inspect.batch_under_way import batch_under_way
from headgate.inspect.checked_rules import checked_rules
from headgate.inspect.current_run import CurrentRun, find_current_run
from headgate.inspect.derived_tables import tables_behind
from headgate.inspect.gold_tables import GoldTable, read_derived
from headgate.inspect.ledger_rows import LedgerRows
from headgate.inspect.own_tables import kind_of
from headgate.inspect.pending_tables import PendingTable, pending_tables
from headgate.inspect.quarantined_records import count_quarantined
from headgate.inspect.query_table import quoted
from headgate.inspect.recorded_change import recorded_changes
from headgate.inspect.replay_ledger_rows import ReplayLedgerRows
from headgate.land.checked import Checked
from headgate.pipeline import ChangePipeline, Pipeline
from headgate.pipeline.change_pipeline import FILES_TABLE


@dataclass(frozen=True)
class LastBatch:
    """The newest batch that is complete."""

    batch: int
    at: datetime
    rows: int
    tables: int


@dataclass(frozen=True)
class Status:
    """One pipeline at one moment."""

    pipeline: str
    file: str | None
    lake: str
    run: CurrentRun | None
    batches: int
    last_batch: LastBatch | None
    open_batch: int | None
    """A batch that is staged and not complete yet."""
    rows: int
    """Records in silver tables, or changes in change logs."""
    quarantined: Mapping[str, int]
    """How many are open, for which reason."""
    replayed: int
    """Records that were in quarantine and have landed since."""
    dropped: int
    replay_cut_short: bool
    """Whether a replay or drop was begun and waits for the next one to complete it."""
    tables: int
    pending: tuple[PendingTable, ...]
    schema_changes: int
    """Changes of tables that were there already; new tables are not counted."""
    expectations: tuple[Checked, ...] = ()
    """How the rows of each table fared by its rules; those that most rows broke are first."""
    files: int | None = None
    """Change files that were read; None where the source has none."""
    behind: tuple[str, ...] = ()
    """Merged and history tables that do not have all of their change logs yet."""
    derived: tuple[GoldTable, ...] = ()
    """Tables that `gold` declares and that were derived, or could not be."""


def read_status(pipeline: Pipeline | ChangePipeline) -> Status:
    ledger, replays = LedgerRows(pipeline), ReplayLedgerRows(pipeline)
    totals = ledger.query(
        f"""
        SELECT sum("rows") AS "rows", count(DISTINCT "table") AS tables FROM everything
        WHERE kind = 'table' AND {ledger.silver_only}
        """
    )
    quarantined = count_quarantined(pipeline)
    batches = ledger.query(
        "SELECT version, max(at) AS at FROM ledger WHERE kind = 'batch' GROUP BY version"
    )
    newest = max(batches, key=lambda row: int(row["version"]), default=None)
    return Status(
        pipeline=pipeline.name,
        file=pipeline.file,
        lake=pipeline.lake,
        run=find_current_run(pipeline),
        batches=len(batches),
        last_batch=_last_batch(ledger, newest) if newest else None,
        open_batch=batch_under_way(pipeline, newest["version"] if newest else None),
        rows=totals[0]["rows"] or 0 if totals else 0,
        quarantined=quarantined.open,
        replayed=quarantined.replayed,
        dropped=quarantined.dropped,
        replay_cut_short=replays.cut_short,
        tables=totals[0]["tables"] if totals else 0,
        pending=(*pending_tables(ledger), *pending_tables(replays)),
        schema_changes=sum(
            change.change != "CreateTable" and kind_of(pipeline, change.table).is_landed_in
            for change in recorded_changes(ledger)
        ),
        expectations=checked_rules(ledger),
        files=_files_read(ledger) if isinstance(pipeline, ChangePipeline) else None,
        behind=tables_behind(pipeline, ledger) if isinstance(pipeline, ChangePipeline) else (),
        derived=read_derived(pipeline, ledger) if pipeline.gold else (),
    )


def _files_read(ledger: LedgerRows) -> int:
    read = ledger.query(
        f"""
        SELECT sum("rows") AS count FROM ledger
        WHERE kind = 'table' AND "table" = {quoted(FILES_TABLE)}
        """
    )
    return read[0]["count"] or 0 if read else 0


def _last_batch(ledger: LedgerRows, newest: Mapping[str, Any]) -> LastBatch:
    (landed,) = ledger.query(
        f"""
        SELECT sum("rows") AS "rows", count(DISTINCT "table") AS tables FROM ledger
        WHERE kind = 'table' AND version = {newest["version"]} AND {ledger.silver_only}
        """
    )
    return LastBatch(newest["version"], newest["at"], landed["rows"] or 0, landed["tables"])
