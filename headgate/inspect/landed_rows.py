"""The rows of landed tables, compared with the rows that the ledger says have landed in them.

Others can write to every table of a lake. That rows are missing or extra shows in their number, and
the commit that did it in the log of the table, for as long as the log keeps it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Self
from urllib.parse import unquote

import pyarrow as pa

from headgate.amounts import counted
from headgate.config import PipelineConfig
from headgate.inspect.tables import map_parallel
from headgate.lake.actions import ENGINE
from headgate.lake.ledger_entries import LEDGER, Kind, LedgerRow, PendingEntry, SchemaEntry
from headgate.lake.ledger_snapshot import LedgerSnapshot, TableTotals
from headgate.lake.log import LogEntry, read_entries
from headgate.lake.snapshot import Snapshot
from headgate.lake.streams import app_id, replay_name
from headgate.lake.tables import TableError, open_table, table_url, tables_in
from headgate.schema.changes import CreateTable

_OUR_APPS = app_id("")
_UNREADABLE = (TableError, OSError, pa.ArrowException)
_MAX_ENTRIES = 10_000
"""Entries of a log that are searched for the commits that explain a difference."""
_AT_ONCE = 100
"""Entries that are read at a time."""


@dataclass(frozen=True)
class ForeignCommit:
    """A commit of another writer that changed the number of rows."""

    version: int
    at: datetime
    operation: str
    engine: str
    added: int | None
    """Rows; None if the log does not say."""
    removed: int | None
    keeps_rows: bool = False
    """Whether it claims to change no rows, as every OPTIMIZE does."""

    @property
    def change(self) -> int | None:
        """The number of rows after it, less that before."""
        if self.added is None or self.removed is None:
            return None
        return self.added - self.removed

    @property
    def text(self) -> str:
        """`version 7: DELETE by Apache-Spark/4.0.0, 43 rows fewer`."""
        change = self.change
        rows = "an unknown number of rows"
        if change is not None:
            rows = f"{counted(abs(change), 'row')} {'more' if change > 0 else 'fewer'}"
        wrong = ", although it must not change any" if self.keeps_rows else ""
        return f"version {self.version}: {self.operation} by {self.engine}, {rows}{wrong}"


@dataclass(frozen=True)
class LandedRows:
    """A landed table: the rows that should be in it, and those that are."""

    table: str
    landed: int
    """Rows that all pipelines and replays have landed, according to the ledger. Those of a batch
    that is not complete yet are included once they are in the table."""
    recorded_version: int
    """The version that the ledger has recorded last."""
    found: int | None = None
    """None if the table is gone, or cannot be read."""
    version: int | None = None
    commits: tuple[ForeignCommit, ...] = ()
    """Commits of others that explain the difference, the newest first, as far as the log goes."""
    landed_since: int = 0
    """Number of commits of Headgate with rows after the first of these."""
    created_again: datetime | None = None
    """When somebody created the table again, after records had landed in it."""
    trouble: str | None = None
    """Why its rows could not be counted."""

    @property
    def missing(self) -> int:
        return max(0, -self.difference)

    @property
    def extra(self) -> int:
        return max(0, self.difference)

    @property
    def difference(self) -> int:
        """The number of rows found, less those landed; 0 if they could not be counted."""
        return 0 if self.found is None else self.found - self.landed

    @property
    def is_behind(self) -> bool:
        """Whether the table is gone, or older than the ledger."""
        if self.trouble is not None:
            return False
        return self.version is None or self.version < self.recorded_version

    @property
    def is_explained(self) -> bool:
        """Whether commits of others explain the whole difference."""
        return bool(self.commits) and _sum(self.commits) == self.difference

    @property
    def is_ok(self) -> bool:
        return not (self.difference or self.is_behind or self.trouble)

    @property
    def problem(self) -> str | None:
        """What is wrong, as a sentence without a full stop; None if nothing is."""
        if self.trouble is not None:
            return f"cannot be read: {self.trouble}"
        if self.version is None:
            return f"no longer exists; {counted(self.landed, 'row')} have landed"
        problems = []
        if self.is_behind:
            known = f"the ledger knows version {self.recorded_version}"
            problems.append(f"is at version {self.version}, but {known}")
        if self.difference:
            amount = abs(self.difference)
            verb = "is" if amount == 1 else "are"
            kind = "missing" if self.difference < 0 else "extra"
            problems.append(f"{counted(amount, 'row')} {verb} {kind}")
        return ", ".join(problems) or None


def read_landed_rows(
    pipeline: PipelineConfig, tables: Collection[str] | None = None, *, explain: bool = True
) -> list[LandedRows]:
    """Count the rows of the pipeline's landed tables, or of some of them, by name.

    Only logs are read, except those of tables whose log does not have the number of rows. With
    `explain`, the logs of tables with a difference are searched for commits of others.
    """
    ledger = LedgerSnapshot.open(pipeline.lake, pipeline.ledger)
    account = _Account.of(pipeline.ledger, ledger)
    own = account.tables_of(pipeline.name)
    wanted = own if tables is None else [table for table in own if table in tables]
    books = _Books(pipeline.lake, account)
    compared = map_parallel(lambda table: books.compare(table, explain), wanted)
    return [compared[table] for table in sorted(compared)]


class _Account:
    """What one ledger says about all of its streams and replays."""

    def __init__(self, name: str, ledger: LedgerSnapshot) -> None:
        self.name = name
        self._ledger = ledger
        self._streams = ledger.each
        self.landed = ledger.tables(Kind.TABLE) if ledger.names else {}

    @classmethod
    def of(cls, name: str, ledger: LedgerSnapshot) -> Self:
        return cls(name, ledger.of(*ledger.all_names()))

    def tables_of(self, pipeline: str) -> dict[str, TableTotals]:
        """Return the tables that a pipeline, or a replay of its quarantine, has landed in."""
        streams = self._ledger.of(pipeline).streams
        return self._ledger.of(*streams, replay_name(pipeline)).tables(Kind.TABLE)

    def created_at(self, table: str) -> datetime | None:
        """Return when the table was created first, according to the ledger."""
        rows = self._ledger.entries(SchemaEntry, table=table)
        created = (row.at for row in rows if row.entry.change == CreateTable.__name__)
        return min(created, default=None)

    def not_recorded(self, table: Snapshot) -> int:
        """Return the number of rows in a table that the ledger gets with its next commit.

        A batch may be under way, or a run that ended in the middle of one has left it so.
        """
        rows = 0
        for stream in self._streams:
            app = app_id(stream.name)
            marked = table.mark(app)
            if marked is None:
                continue
            if stream.landed is None or marked > stream.landed:
                rows += _rows_marked(table, app, stream)
            else:
                # A pending file has landed if the table has the mark of its batch.
                rows += sum(
                    row.entry.rows
                    for row in self._pending[stream.name]
                    if row.entry.table == table.table and row.entry.staged_version <= marked
                )
        return rows

    @cached_property
    def _pending(self) -> Mapping[str, Sequence[LedgerRow[PendingEntry]]]:
        return {stream.name: stream.pending() for stream in self._streams}


def _rows_marked(table: Snapshot, app: str, stream: LedgerSnapshot) -> int:
    """Return the number of rows of commits whose batches a stream has not completed."""
    recorded = stream.table_versions().get(table.table, -1)
    landed = -1 if stream.landed is None else stream.landed
    rows = 0
    for entry in read_entries(table.url, range(recorded + 1, table.version + 1)):
        if entry.marks.get(app, -1) > landed:
            rows += _changed_rows(table, entry).change or 0
    return rows


class _Books:
    """What all ledgers of a lake say, and what its tables have."""

    def __init__(self, lake: str, account: _Account) -> None:
        self._lake = lake
        self._account = account

    def compare(self, table: str, explain: bool) -> LandedRows:
        totals = self._account.landed[table]
        compared = LandedRows(table, totals.rows, totals.table_version)
        try:
            snapshot = Snapshot.open(self._lake, table)
            if snapshot is None:
                return compared
            compared = replace(compared, found=count_rows(snapshot), version=snapshot.version)
            if compared.difference:
                accounts = (self._account, *self._others(table))
                landed = (one.landed[table].rows + one.not_recorded(snapshot) for one in accounts)
                compared = replace(compared, landed=sum(landed))
            if explain and not compared.is_ok:
                compared = self._explained(compared, snapshot)
        except _UNREADABLE as error:
            return replace(compared, trouble=str(error).splitlines()[0])
        return compared

    def _others(self, table: str) -> list[_Account]:
        return [account for account in self._other_accounts if table in account.landed]

    @cached_property
    def _other_accounts(self) -> list[_Account]:
        """Other ledgers of the lake, which are looked for only if rows differ."""
        known = {self._account.name, *self._account.landed}
        names = [name for name in tables_in(self._lake) if name not in known]
        found = map_parallel(lambda name: _other_account(self._lake, name), names)
        return [account for account in found.values() if account is not None]

    def _explained(self, compared: LandedRows, table: Snapshot) -> LandedRows:
        commits, landed_since = _find_commits(table, compared.difference)
        created = table.definition.metadata.created
        first = self._account.created_at(compared.table)
        again = None
        if created is not None and first is not None:
            at = datetime.fromtimestamp(created / 1000, UTC)
            again = at if at > first else None
        return replace(
            compared, commits=tuple(commits), landed_since=landed_since, created_again=again
        )


_OF_A_LEDGER = {"pipeline", "kind", "version", "table", "rows", "table_version"}


def _other_account(lake: str, name: str) -> _Account | None:
    """Return the account of a table if it is a ledger."""
    with suppress(*_UNREADABLE):
        opened = open_table(table_url(lake, name))
        columns = {field.name for field in opened.schema().fields} if opened is not None else set()
        if columns >= _OF_A_LEDGER and columns <= {*LEDGER.names}:
            return _Account.of(name, LedgerSnapshot(table_url(lake, name), opened, ()))
    return None


def count_rows(table: Snapshot) -> int:
    """Return the number of rows: from the log, or by reading if the log does not have it."""
    if "deletionVectors" not in table.definition.protocol.features:
        counts = list(table.row_counts.values())
        if None not in counts:
            return sum(map(int, filter(None, counts)))
    (row,) = table.query("SELECT count(*) AS found FROM stored").read_all().to_pylist()
    return int(row["found"])


def _find_commits(table: Snapshot, difference: int) -> tuple[list[ForeignCommit], int]:
    """Return commits of others up to those that explain a difference, the newest first.

    Also return how many commits of Headgate followed the first of them.
    """
    found: list[ForeignCommit] = []
    ours = landed_since = 0
    for entry in _newest_first(table):
        if _is_ours(entry):
            ours += entry.changes_rows
            continue
        if not (entry.added_files or entry.removed_files):
            continue
        commit = _changed_rows(table, entry)
        if commit.change == 0:
            continue
        found.append(commit)
        landed_since = ours
        if _sum(found) == difference:
            break
    return found, landed_since


def _sum(commits: Sequence[ForeignCommit]) -> int | None:
    changes = [commit.change for commit in commits]
    return None if None in changes else sum(change for change in changes if change)


def _newest_first(table: Snapshot) -> Iterator[LogEntry]:
    """Yield the entries of a log that it still has, up to a number of them."""
    last = max(-1, table.version - _MAX_ENTRIES)
    for newest in range(table.version, last, -_AT_ONCE):
        versions = range(max(newest - _AT_ONCE, last) + 1, newest + 1)
        entries = [*read_entries(table.url, versions)]
        yield from reversed(entries)
        if len(entries) < len(versions):
            return


def _is_ours(entry: LogEntry) -> bool:
    """Whether Headgate has made a commit: by itself, or by Spark, with a mark."""
    ours = any(app.startswith(_OUR_APPS) for app in entry.marks)
    return ours or _info(entry).get("engineInfo") == ENGINE


def _info(entry: LogEntry) -> Mapping[str, Any]:
    return next((one["commitInfo"] for one in entry.actions if "commitInfo" in one), {})


def _changed_rows(table: Snapshot, entry: LogEntry) -> ForeignCommit:
    """Return what a commit has changed.

    Two commits that combine the same files both remove them; rows go with the first only. So the
    files of the version before count, and not what the entry says.
    """
    info = _info(entry)
    added = [_rows_of(file) for file in entry.added_files]
    removed: list[int | None] = []
    if entry.removed_files:
        before = _files_at(table, entry.version - 1)
        again = {unquote(file["path"]): _records(file) for file in entry.added_files}
        for file in entry.removed_files:
            path = unquote(file["path"])
            if before is None:
                removed.append(_rows_of(file, again.get(path)))
            elif path in before:
                removed.append(_rows_of(file, before[path]))
    files = (*entry.added_files, *entry.removed_files)
    return ForeignCommit(
        entry.version,
        entry.at,
        str(info.get("operation") or "a commit"),
        str(info.get("engineInfo") or "another writer"),
        _total(added),
        _total(removed),
        keeps_rows=not any(file.get("dataChange", True) for file in files),
    )


def _files_at(table: Snapshot, version: int) -> Mapping[str, int | None] | None:
    """Return the numbers of rows by path, if the version can still be read."""
    with suppress(*_UNREADABLE):
        before = Snapshot.open(table.lake, table.table, version)
        return None if before is None else before.row_counts
    return None


def _rows_of(file: Mapping[str, Any], records: int | None = None) -> int | None:
    """Return the number of rows of a file, without those that its deletion vector deletes."""
    found = _records(file) if records is None else records
    vector = file.get("deletionVector") or {}
    return None if found is None else found - int(vector.get("cardinality", 0))


def _records(file: Mapping[str, Any]) -> int | None:
    statistics = json.loads(file.get("stats") or "{}")
    records = statistics.get("numRecords")
    return None if records is None else int(records)


def _total(amounts: Sequence[int | None]) -> int | None:
    return None if None in amounts else sum(amount for amount in amounts if amount)
