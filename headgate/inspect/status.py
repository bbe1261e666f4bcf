"""How a pipeline stands: what it has landed, what waits, and whether it runs."""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from headgate.config import Pipeline
from headgate.config.gold import ROUTE, as_pattern, is_declared_gold
from headgate.config.pipeline import FILES_TABLE
from headgate.inspect.ledger import LedgerRows, quoted, recorded_changes
from headgate.inspect.own_tables import kind_of
from headgate.inspect.quarantine import count_quarantined
from headgate.inspect.tables import tables_behind
from headgate.lake.staged import Checked, StagedBatchNote
from headgate.quarantine.ledger import name_in_ledger, name_of_files


@dataclass(frozen=True)
class CurrentRun:
    """The process that lands at this moment."""

    pid: int


def find_current_run(pipeline: Pipeline) -> CurrentRun | None:
    path = Path(f"{pipeline.checkpoint.rstrip('/')}.lock")
    try:
        pid = int(json.loads(path.read_text())["pid"])
        os.kill(pid, 0)
    except PermissionError:
        pass
    except (OSError, ValueError, KeyError, TypeError):
        return None
    # Only now, because a look at the lock takes it for a moment, and a run may want it just then.
    return CurrentRun(pid) if _is_held(path) else None


def _is_held(path: Path) -> bool:
    try:
        with path.open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def batch_under_way(pipeline: Pipeline, landed: int | None) -> int | None:
    """Its version. It is being committed now, or a run ended before it was."""
    staged = StagedBatchNote(pipeline.lake, pipeline.name).under_way(landed)
    return staged.version if staged else None


def checked_rules(ledger: LedgerRows) -> tuple[Checked, ...]:
    """Each rule of each table once; what replays of the quarantine checked again is left out.

    A ledger has a row a table, rule and batch: they are added up where they are.
    """
    found = ledger.query(
        f"""
        SELECT "table", {_part("rule")} AS rule, {_part("on_fail")} AS on_fail,
            sum(CAST({_part("checked")} AS BIGINT)) AS checked, sum("rows") AS failed
        FROM ledger WHERE kind = 'expectation' GROUP BY 1, 2, 3 ORDER BY failed DESC, 1, 2, 3
        """
    )
    return tuple(Checked(**row) for row in found)


def _part(name: str) -> str:
    """What the detail has under a name; a rule's own name has no quotes in it."""
    return f"""regexp_match(detail, '"{name}": "?([^",}}]*)')[1]"""


# Every batch tries again what waits, and so does every start of a run, which writes under the
# version of the last batch: the last word counts, and what it does not name has landed. What only
# follows from landed tables says nothing of what waits.
_STILL_WAITING = """
SELECT "table", "rows", detail FROM ledger
WHERE kind = 'pending' AND (version, at) IN (
    SELECT (version, at) FROM ledger WHERE kind NOT IN ('start', 'merged', 'gold')
    ORDER BY version DESC, at DESC LIMIT 1
)
ORDER BY "table"
"""


@dataclass(frozen=True)
class PendingTable:
    """A table that waits, and why."""

    table: str
    rows: int
    files: int
    error: str


def pending_tables(ledger: LedgerRows) -> tuple[PendingTable, ...]:
    """Those that still wait after the newest batch."""
    by_table: dict[str, list[dict[str, Any]]] = {}
    for row in ledger.query(_STILL_WAITING):
        by_table.setdefault(row["table"], []).append(row)
    return tuple(
        PendingTable(
            table,
            rows=sum(row["rows"] or 0 for row in rows),
            files=len(rows),
            error=str(json.loads(rows[-1]["detail"])["error"]),
        )
        for table, rows in by_table.items()
    )


# The last time that it went well, and the last time that it did not.
_LAST_WORDS = """
SELECT "table", "rows", table_version, at, detail FROM (
    SELECT *, row_number() OVER (
        PARTITION BY "table", coalesce(detail LIKE '%"error": %', false)
        ORDER BY at DESC, version DESC
    ) AS place
    FROM everything WHERE kind = 'gold'
) WHERE place = 1 ORDER BY "table", at
"""


@dataclass(frozen=True)
class GoldTable:
    """A derived table, and how it stands."""

    table: str
    """A template where all of its tables were hindered at once."""
    rows_last: int | None = None
    """Groups or rows that were computed when it last followed; None where it never did."""
    table_version: int | None = None
    at: datetime | None = None
    error: str | None = None
    """What has hindered it since."""


def read_derived(pipeline: Pipeline, ledger: LedgerRows) -> tuple[GoldTable, ...]:
    """Those that the pipeline still declares, by name."""
    words = ledger.query(_LAST_WORDS)
    rows = [row for row in words if is_declared_gold(pipeline.gold, row["table"])]
    found: dict[str, GoldTable] = {}
    for row in rows:
        found[row["table"]] = _after(found.get(row["table"]), row)
    for row in rows:
        if ROUTE in row["table"]:
            fits = re.compile(as_pattern(row["table"])).fullmatch
            if any(one.at and one.at > row["at"] and fits(one.table) for one in found.values()):
                del found[row["table"]]
    return tuple(found.values())


def _after(before: GoldTable | None, row: dict[str, Any]) -> GoldTable:
    """How it stands once a row more is known, which is newer than those before."""
    detail = json.loads(row["detail"]) if row["detail"] else None
    error = detail.get("error") if isinstance(detail, dict) else None
    if error is None:
        return GoldTable(row["table"], row["rows"], row["table_version"], row["at"])
    known = before or GoldTable(row["table"])
    return GoldTable(known.table, known.rows_last, known.table_version, known.at, str(error))


class ReplayLedgerRows(LedgerRows):
    """Asked as the ledger of the stream is."""

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__(pipeline.model_copy(update={"name": name_in_ledger(pipeline.name)}))
        self._note = StagedBatchNote(pipeline.lake, name_of_files(pipeline.name))

    @property
    def cut_short(self) -> bool:
        """Whether one was begun and not completed, unless it is just being done."""
        newest = self.query("SELECT max(version) AS version FROM ledger WHERE kind = 'batch'")
        landed = newest[0]["version"] if newest else None
        return self._note.under_way(landed) is not None


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


def read_status(pipeline: Pipeline) -> Status:
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
        files=_files_read(ledger) if pipeline.lands_changes else None,
        behind=tables_behind(pipeline, ledger) if pipeline.lands_changes else (),
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
