"""Staged files that could not be committed: list them, or drop those that never will be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from headgate.config import PipelineConfig
from headgate.engine.session import pipeline_session
from headgate.errors import LandingError, did_you_mean, listed, shown
from headgate.lake.choose_committer import choose_committer
from headgate.lake.layout import lock_all
from headgate.lake.ledger import Ledger
from headgate.lake.ledger_entries import LedgerRow, LostEntry, PendingEntry
from headgate.lake.ledger_snapshot import LedgerSnapshot
from headgate.lake.log_files import is_needed
from headgate.lake.snapshot import Snapshot
from headgate.lake.staged import StagedFile
from headgate.lake.staged_files import delete_staged, is_staged


@dataclass(frozen=True)
class PendingFile:
    """A staged file whose table could not be committed, and why."""

    table: str
    file: str
    rows: int
    batch: int
    at: datetime
    exists: bool
    error: str


Confirm = Callable[[Sequence[PendingFile]], bool]
"""Decides whether to drop files."""


def list_pending(pipeline: PipelineConfig) -> list[PendingFile]:
    """Return the files that every batch tries to commit again, by table."""
    rows = [row for ledger in _ledgers(pipeline) for row in ledger.snapshot().pending()]
    return [_file(pipeline, row) for row in rows]


def drop_pending(
    pipeline: PipelineConfig,
    table: str,
    file: str | None = None,
    confirm: Confirm = lambda _: True,
) -> list[PendingFile]:
    """Drop pending files of a table, or one of them; their records are lost.

    The ledger keeps a row for each of them.
    """
    with lock_all(pipeline) as holder:
        found = [(ledger, ledger.snapshot().pending()) for ledger in _ledgers(pipeline)]
        rows = [row for _, pending in found for row in pending]
        chosen = {id(row): row for row in rows if _is_chosen(row.entry, table, file)}
        if not chosen:
            raise _unknown(table, file, [row.entry for row in rows])
        files = [_file(pipeline, row) for row in chosen.values()]
        if not confirm(files):
            return []
        for ledger, pending in found:
            dropped = [row.entry for row in pending if id(row) in chosen]
            kept = [row.entry for row in pending if id(row) not in chosen]
            if dropped:
                ledger.take_over(holder)
                ledger.record_pending(
                    pending[0].version, pending[0].batch, [*kept, *_lost(dropped)]
                )
        for row in chosen.values():
            _delete(pipeline.lake, row.entry.staged_file)
        return files


def _ledgers(pipeline: PipelineConfig) -> list[Ledger]:
    committer = choose_committer(pipeline.commit, lambda: pipeline_session(pipeline), pipeline.lake)
    names = LedgerSnapshot.open_all(pipeline.lake, pipeline.ledger, pipeline.name).names
    return [Ledger(pipeline.lake, pipeline.ledger, name, committer) for name in names]


def _file(pipeline: PipelineConfig, row: LedgerRow[PendingEntry]) -> PendingFile:
    entry = row.entry
    return PendingFile(
        entry.table,
        entry.staged_file.path,
        entry.rows,
        entry.staged_version,
        row.at,
        is_staged(pipeline.lake, entry.staged_file),
        entry.error,
    )


def _is_chosen(entry: PendingEntry, table: str, file: str | None) -> bool:
    return entry.table == table and file in (None, entry.staged_file.path)


def _lost(entries: Sequence[PendingEntry]) -> list[LostEntry]:
    return [
        LostEntry(one.table, one.rows, one.staged_version, one.staged_file, f"dropped: {one.error}")
        for one in entries
    ]


def _delete(lake: str, file: StagedFile) -> None:
    """Delete a file, unless a version of its table has it after all: a commit may succeed and yet
    report an error."""
    table = Snapshot.open(lake, file.table)
    if table is None or not is_needed(table, file.path):
        delete_staged(lake, file)


def _unknown(table: str, file: str | None, pending: Sequence[PendingEntry]) -> LandingError:
    tables = sorted({one.table for one in pending})
    if table in tables:
        paths = [one.staged_file.path for one in pending if one.table == table]
        message = f"table {shown(table)} has no pending file {shown(str(file))}"
        return LandingError("table-unknown", message, did_you_mean(str(file), paths))
    hint = f"pending: {listed(tables)}" if tables else "no table is pending"
    return LandingError("table-unknown", f"no pending files of table {shown(table)}", hint)
