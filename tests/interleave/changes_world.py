"""Change logs that several runs append to, and the tables that several runs merge them into."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import Any

import pyarrow as pa

from headgate.cdc.merge import merge_tables
from headgate.cdc.unmerged import MergePlan
from headgate.engine.events import MergeFailed
from headgate.gold.commit import Derivation, commit_files
from headgate.lake.commit import (
    Commit,
    Mark,
    MergeCommit,
    MergeRule,
    commit_rows,
)
from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.lake.key_index import KeyIndex
from headgate.lake.merge import find_rows
from headgate.lake.parquet import stage_rows
from headgate.lake.snapshot import Snapshot
from headgate.lake.tables import CommitConflict
from tests.interleave.maintenance import maintain_one
from tests.interleave.user import User
from tests.interleave.watched import (
    Operation,
    Row,
    Rows,
    SameRows,
    Version,
    WatchedLake,
    difference,
    row,
)
from tests.interleave.world import Run, World

LOG, MERGED, HISTORY, TOMBSTONES = "shop_log", "shop", "shop_history", "_tombstones_shop"
COUNTS, NAMES = "counts", "names"
APP, SOURCE = "headgate:shop:merge", "headgate:shop:gold"
_CHANGES = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("_order", pa.string()),
        ("_uuid", pa.string()),
        ("_is_deleted", pa.bool_()),
        ("_change_type", pa.string()),
        ("_source_timestamp", pa.timestamp("us", "UTC")),
        ("_primary_keys", pa.list_(pa.string())),
    ]
)
_COUNTS = pa.schema([("name", pa.string()), ("rows", pa.int64())])
_FILE_SIZE = 1 << 20
_CLEAR = ("CommitConflict", "CommitFailedError", "NotWritable", "TableNotFoundError")
"""Errors with which a merge may end."""


@dataclass
class Appends(Operation):
    """Batches of changes, each with a mark."""

    app: str
    batches: dict[int, Rows]
    name: str = "landing"

    def check(self, table: str, before: Version | None, after: Version) -> None:
        rows = before.rows if before else Counter()
        wanted: Rows = Counter()
        if self.app in after.new_marks:
            wanted = self.batches[after.new_marks[self.app]]
        assert after.rows == rows + wanted, difference(after.rows, rows + wanted)


@dataclass
class Merges(Operation):
    """A merge of a log: each commit has the rows that its mark promises."""

    lake: WatchedLake
    app: str
    expected: Mapping[str, Callable[[Rows], Rows]]
    """The rows of a table, given those of the log."""
    compared: Mapping[str, tuple[str, ...]]
    """Columns by table."""
    touched: set[str]
    """Tables whose rows a user has changed."""
    name: str = "merge"

    def check(self, table: str, before: Version | None, after: Version) -> None:
        if table not in self.expected or table in self.touched:
            return
        rows = self.seen(table, after)
        marked = [mark for app, mark in after.new_marks.items() if app == self.app_now]
        if before is not None and not after.new_marks:
            assert rows == self.seen(table, before), "rows change without a mark"
        for log_version in marked:
            wanted = self.wanted(table, log_version)
            assert rows == wanted, difference(rows, wanted)

    @property
    def app_now(self) -> str:
        """The app whose mark is a version of the log that there is now."""
        return f"{self.app}@{self.lake.newest(LOG).table_id}"

    def seen(self, table: str, version: Version) -> Rows:
        return project(version.rows, self.compared[table])

    def wanted(self, table: str, log_version: int) -> Rows:
        return self.expected[table](self.lake.tables[LOG][log_version].rows)


def project(rows: Rows, columns: tuple[str, ...]) -> Rows:
    found: Counter[Row] = Counter()
    for values, number in rows.items():
        found[frozenset(pair for pair in values if pair[0] in columns)] += number
    return found


def newest_of_each_key(log: Rows) -> Rows:
    last = {key: changes[-1] for key, changes in _by_key(log).items()}
    return project(
        Counter(row(change) for change in last.values() if not change["_is_deleted"]),
        ("id", "name", "_order"),
    )


def all_versions(log: Rows) -> Rows:
    found: Rows = Counter()
    for changes in _by_key(log).values():
        for at, change in enumerate(changes):
            following = changes[at + 1] if at + 1 < len(changes) else None
            if not change["_is_deleted"]:
                kept = {name: change[name] for name in ("id", "name", "_order")}
                ends = following and following["_source_timestamp"]
                found[row({**kept, "_valid_to": ends, "_is_current": following is None})] += 1
    return found


def every_change(log: Rows) -> Rows:
    return project(log, ("id", "name", "_order"))


def counts_by_name(log: Rows) -> Rows:
    names = Counter(dict(change)["name"] for change in log.elements())
    return Counter(row({"name": name, "rows": number}) for name, number in names.items())


def all_names(log: Rows) -> Rows:
    return project(log, ("name", "_order"))


def _by_key(log: Rows) -> dict[int, list[dict[str, Any]]]:
    changes: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for change in sorted(map(dict, log), key=lambda change: change["_order"]):
        changes[change["id"]].append(change)
    return changes


class ChangesWorld(World):
    name = "changes"
    hazards = (
        "overlapping merges by key",
        "overlapping merges without a key",
        "overlapping merges of history",
        "overlapping derivations",
        "column added to a merged table",
        "several compactions",
        "merged table restored",
        "log recreated",
        "deletion vectors",
    )

    def prepare(self) -> None:
        self._orders = count(1)
        self._mergers = 2 if (self.focus or "").startswith("overlapping merges") else 1
        self._derivers = 2 if self.focus == "overlapping derivations" else 1
        has_key = self.focus != "overlapping merges without a key" and self.random.random() < 0.7
        has_key |= self.focus in ("overlapping merges by key", "overlapping merges of history")
        self.key = ("id",) if has_key else ()
        self._has_history = has_key and (
            self.focus == "overlapping merges of history" or self.random.random() < 0.4
        )
        self._batches: dict[str, Appends] = {
            app: Appends(app, {}) for app in ("headgate:shop", "headgate:shop:replay")
        }
        expected: dict[str, Callable[[Rows], Rows]] = {
            MERGED: newest_of_each_key if has_key else every_change,
            HISTORY: all_versions,
        }
        columns: dict[str, tuple[str, ...]] = {
            MERGED: ("id", "name", "_order"),
            HISTORY: ("id", "name", "_order", "_valid_to", "_is_current"),
            COUNTS: ("name", "rows"),
            NAMES: ("name", "_order"),
        }
        self._touched: set[str] = set()
        self._merges = Merges(self.lake, APP, expected, columns, self._touched)
        derived = {COUNTS: counts_by_name, NAMES: all_names}
        self._derivations = Merges(
            self.lake, SOURCE, derived, columns, self._touched, name="derivation"
        )
        committer = self._committer()
        first = self._batches["headgate:shop"]
        for batch in range(self.random.randint(1, 3)):
            with self.lake.operation("", first):
                self._append(committer, first, batch)
        if self.random.random() < 0.8 or self.focus is not None:
            with self.lake.operation("", self._merges):
                self._merge_once(committer)
            with self.lake.operation("", self._derivations):
                self._derive_once(committer)
        self._begun = len(first.batches)

    def actors(self) -> Mapping[str, Run]:
        chosen: dict[str, Run] = {
            "landing": lambda: self._land("headgate:shop", self._begun),
        }
        if self.random.random() < 0.4:
            chosen["replay"] = lambda: self._land("headgate:shop:replay", 0)
        chosen |= {f"merger {number}": self._merge for number in range(self._mergers)}
        chosen |= {f"deriver {number}": self._derive for number in range(self._derivers)}
        several = self.focus == "several compactions"
        if several or self.random.random() < 0.6:
            chosen["maintenance"] = self._maintain
        if several:
            chosen["compaction"] = lambda: self._compact((LOG, MERGED))
        users: list[User] = []
        if self.focus == "column added to a merged table":
            users.append(self._user(self.random.choice(self._merged), "add_column"))
        if several:
            users.append(self._user(self.random.choice(self._merged), "optimize"))
        if self.focus == "merged table restored":
            users.append(self._user(MERGED, "restore"))
        if self.focus == "deletion vectors":
            users.append(self._user(self.random.choice((LOG, MERGED)), "delete_by_vector"))
        if self.random.random() < 0.5:
            table = self.random.choice((LOG, *self._merged))
            users.append(self._user(table, "set_property", "checkpoint"))
        if self.focus == "log recreated":
            chosen["user of the log"] = self._recreate_log
        for number, user in enumerate(users):
            chosen[f"user {number} of {user.table}"] = partial(self._use, user)
        return chosen

    def finish(self) -> None:
        """Bring everything up to date once more: nothing may be stuck."""
        super().finish()
        committer = self._committer()
        with self.lake.operation("", self._merges):
            self._merge_once(committer)
        with self.lake.operation("", self._derivations):
            self._derive_once(committer)

    def check(self) -> None:
        super().check()
        newest = self.lake.newest(LOG).number
        for merges, tables in ((self._merges, self._merged), (self._derivations, (COUNTS, NAMES))):
            for table in tables:
                version = self.lake.newest(table)
                marked = version.marks.get(merges.app_now, -1)
                if table in self._not_writable and marked < newest:
                    continue  # left to Spark
                assert marked >= 0, f"{table} has not been merged from its log"
                assert self._log(marked) == self._log(newest), f"{table} is behind its log"
                found, wanted = merges.seen(table, version), merges.wanted(table, newest)
                assert found == wanted, f"{table}: {difference(found, wanted)}"

    def _log(self, version: int) -> Rows:
        return self.lake.tables[LOG][version].rows

    @property
    def _merged(self) -> tuple[str, ...]:
        return (MERGED, HISTORY) if self._has_history else (MERGED,)

    @property
    def _not_writable(self) -> set[str]:
        """Tables that only Spark can merge into."""
        return {
            name
            for name, versions in self.lake.tables.items()
            if any(vector for _, vector in versions[-1].files)
        }

    def _committer(self) -> DeltaRsCommitter:
        return DeltaRsCommitter(str(self.lake.path))

    def _user(self, table: str, *kinds: str) -> User:
        return User(self, table, kinds, "id", "name")

    def _use(self, user: User) -> None:
        for _ in range(self.random.randint(1, 3)):
            if "delete_by_vector" in user.kinds or "restore" in user.kinds:
                self._touched |= {user.table, *(self._merged if user.table == LOG else ())}
            user.act()

    def _land(self, app: str, first: int) -> None:
        committer = self._committer()
        for batch in range(first, first + self.random.randint(1, 3)):
            with self.operation(self._batches[app]):
                for _ in range(5):
                    try:
                        state = committer.state(LOG, app)
                        if state is None or state.marked is None or state.marked < batch:
                            self._append(committer, self._batches[app], batch)
                        break
                    except CommitConflict:
                        continue

    def _append(self, committer: DeltaRsCommitter, appends: Appends, batch: int) -> None:
        if batch not in appends.batches:
            self._rows_of_batch(appends, batch)
        rows = pa.Table.from_pylist(
            [dict(change) for change in appends.batches[batch]], _CHANGES.remove(7)
        )
        names = pa.array([[*self.key]] * len(rows), _CHANGES.field("_primary_keys").type)
        rows = rows.append_column("_primary_keys", names)
        appends.batches[batch] = Counter(map(row, rows.to_pylist()))
        commit_rows(committer, LOG, rows, Mark(appends.app, batch))

    def _rows_of_batch(self, appends: Appends, batch: int) -> None:
        changes = []
        for _ in range(self.random.randint(1, 4)):
            order = next(self._orders)
            changes.append(
                {
                    "id": self.random.randint(1, 4),
                    "name": self.random.choice("abc"),
                    "_order": f"{order:09}",
                    "_uuid": f"u{order}",
                    "_is_deleted": self.random.random() < 0.2,
                    "_change_type": "INSERT",
                    "_source_timestamp": datetime(2026, 1, 1, tzinfo=UTC)
                    + timedelta(seconds=order),
                }
            )
        appends.batches[batch] = Counter(map(row, changes))

    def _merge(self) -> None:
        committer = self._committer()
        for _ in range(self.random.randint(1, 3)):
            with self.operation(self._merges):
                self._merge_once(committer)

    def _merge_once(self, committer: DeltaRsCommitter) -> None:
        history = HISTORY if self._has_history else None
        plan = MergePlan(str(self.lake.path), LOG, MERGED, history, TOMBSTONES, APP)
        for result in merge_tables([plan], committer):
            self.scheduler.note(f"merged: {result}"[:120])
            if isinstance(result, MergeFailed):
                # Files of a log that somebody drops are gone at once.
                is_gone = self.focus == "log recreated" and "FileNotFound" in result.error
                is_clear = is_gone or result.error.startswith(_CLEAR)
                assert is_clear, f"{result.table}: {result.error}"

    def _derive(self) -> None:
        committer = self._committer()
        for _ in range(self.random.randint(1, 3)):
            with self.operation(self._derivations):
                self._derive_once(committer)

    def _derive_once(self, committer: DeltaRsCommitter) -> None:
        self._count(committer)
        self._append_names(committer)

    def _count(self, committer: DeltaRsCommitter) -> None:
        """Merge the counts of new rows into a derived table."""
        lake = str(self.lake.path)
        before, log = Snapshot.open(lake, COUNTS), Snapshot.open(lake, LOG)
        assert log is not None
        mark = Mark(f"{SOURCE}@{log.table_id}", log.version)
        marked = before.mark(mark.app) if before else None
        if marked == log.version:
            return
        new = log.since(marked)
        counted = Counter(new.rows(["name"])["name"].to_pylist())
        groups = pa.Table.from_pylist(
            [{"name": name, "rows": rows} for name, rows in counted.items()], _COUNTS
        )
        if before is None or marked is None or new is log:
            file = stage_rows(lake, COUNTS, groups)
            based_on = None if before is None else before.version
            mode = "create" if before is None else "replace"
            committer.commit(Commit(COUNTS, _COUNTS, (file,), (mark,), mode, based_on=based_on))  # type: ignore[arg-type]
            return
        found = find_rows(before, KeyIndex(groups, ("name",)), ["name", "rows"])
        for kept in found.rows.to_pylist():
            counted[kept["name"]] += kept["rows"]
        merged = pa.Table.from_pylist(
            [{"name": name, "rows": rows} for name, rows in counted.items()], _COUNTS
        )
        committer.merge(MergeCommit(COUNTS, merged, MergeRule(("name",)), (mark,), based_on=found))

    def _append_names(self, committer: DeltaRsCommitter) -> None:
        """Append the new rows to a derived table."""
        lake = str(self.lake.path)
        before, log = Snapshot.open(lake, NAMES), Snapshot.open(lake, LOG)
        assert log is not None
        mark = Mark(f"{SOURCE}@{log.table_id}", log.version)
        marked = before.mark(mark.app) if before else None
        if marked == log.version:
            return
        new = log.since(marked)
        rows = new.rows(["name", "_order"])
        appends = before is not None and new is not log
        derivation = Derivation(NAMES, before, (mark,), appends)
        result = commit_files(committer, derivation, [stage_rows(lake, NAMES, rows)])
        assert result.error is None or result.error.startswith(_CLEAR), result.error

    def _maintain(self) -> None:
        committer = self._committer()
        for _ in range(2):
            if self.random.random() < 0.5:
                self.scheduler.note("days pass")
                self.lake.let_days_pass()
            for table in (LOG, *self._merged, COUNTS):
                compacts = table == LOG or (table == MERGED and not self.key)
                with self.operation(SameRows("maintenance")):
                    maintain_one(
                        committer,
                        table,
                        keep=timedelta(days=self.random.choice((1, 30))),
                        landed={},
                        pending=(),
                        compacts=compacts,
                    )

    def _compact(self, tables: tuple[str, ...]) -> None:
        committer = self._committer()
        for table in tables:
            with self.operation(SameRows("compaction")):
                committer.compact(table, _FILE_SIZE)

    def _recreate_log(self) -> None:
        """Drop the log, and create one with other changes."""
        self.scheduler.step("waits for a turn")
        while self.scheduler.announced(f"create {LOG}/_delta_log/"):
            self.scheduler.step("waits for a turn")
        with self.scheduler.atomic():
            self.lake.observe(self.scheduler.actor or "")
            self.scheduler.note("user: drops the log")
            self.lake.drop(LOG)
            self._touched |= {*self._merged, COUNTS, NAMES}
            committer = self._committer()
            appends = Appends("user", {})
            for batch in range(self.random.randint(1, 6)):
                with self.lake.operation(self.scheduler.actor or "", appends):
                    self._append(committer, appends, batch)
