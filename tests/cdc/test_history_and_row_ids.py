"""Merged tables, histories and folds of one log agree, also with deletions by row ID."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.cdc.as_of import Cutoff, key_of_log, rows_as_of
from headgate.cdc.change_log import ChangeLog
from headgate.cdc.history import merge_history
from headgate.cdc.merge_table import TableMerged, merge_table
from headgate.cdc.unmerged import MergePlan
from headgate.lake.delta_rs import DeltaRsCommitter
from tests.lake.large_tables import merged_as_if

LOG = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("line", pa.int64()),
        pa.field("value", pa.string()),
        pa.field("_order", pa.string()),
        pa.field("_uuid", pa.string()),
        pa.field("_is_deleted", pa.bool_()),
        pa.field("_change_type", pa.string()),
        pa.field("_source_timestamp", pa.timestamp("us", "UTC")),
        pa.field("_primary_keys", pa.list_(pa.string())),
        pa.field("_row_id", pa.string()),
    ]
)
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)

Row = tuple[int, int, str]


@dataclass
class Table:
    """A table with two key columns and row IDs that logs its changes."""

    random: Random
    row_ids: bool
    rows: dict[tuple[int, int], tuple[str, str]] = field(default_factory=dict)
    log: list[dict[str, Any]] = field(default_factory=list)
    states: list[list[Row]] = field(default_factory=list)
    """The rows after each change."""

    def run(self, statements: int) -> None:
        for _ in range(statements):
            self._anything()

    def _anything(self) -> None:
        chance, key = self.random.random(), (self.random.randint(1, 4), self.random.randint(1, 2))
        if key not in self.rows:
            row_id = f"R{self.random.randint(1, 12)}"
            if row_id not in {used for _, used in self.rows.values()}:
                self._put("INSERT", key, row_id)
        elif chance < 0.4:
            self._put("UPDATE", key, self.rows[key][1])
        elif chance < 0.6:
            to = (self.random.randint(5, 9), 1)
            if to not in self.rows:
                row_id = self.rows[key][1]
                self._take("UPDATE-DELETE", key)
                self._put("UPDATE-INSERT", to, row_id)
        else:
            self._take("DELETE", key, by_row_id_alone=self.row_ids and chance > 0.8)

    def _put(self, kind: str, key: tuple[int, int], row_id: str) -> None:
        self.rows[key] = f"version {len(self.log)}", row_id
        self._log_change(kind, key, self.rows[key][0], row_id)

    def _take(self, kind: str, key: tuple[int, int], by_row_id_alone: bool = False) -> None:
        value, row_id = self.rows.pop(key)
        logged = (None, None) if by_row_id_alone else key
        self._log_change(kind, logged, None if by_row_id_alone else value, row_id)

    def _log_change(
        self, kind: str, key: tuple[int | None, int | None], value: str | None, row_id: str
    ) -> None:
        number = len(self.log)
        self.log.append(
            {
                "id": key[0],
                "line": key[1],
                "value": value,
                "_order": f"{number:06d}",
                "_uuid": str(number),
                "_is_deleted": kind in ("DELETE", "UPDATE-DELETE"),
                "_change_type": kind,
                "_source_timestamp": BEGAN + timedelta(seconds=number),
                "_primary_keys": ["id", "line"],
                "_row_id": row_id if self.row_ids else None,
            }
        )
        self.states.append(sorted((*key, text) for key, (text, _) in self.rows.items()))


def arrivals(table: Table, random: Random) -> Iterator[list[dict[str, Any]]]:
    shuffled = random.sample(table.log, len(table.log))
    batches = random.randint(1, 4)
    for number in range(batches):
        if shuffled[number::batches]:
            yield shuffled[number::batches]


def plain(rows: list[dict[str, Any]]) -> list[Row]:
    return sorted((row["id"], row["line"], row["value"]) for row in rows)


any_arrival = given(
    seed=st.integers(0, 10**9),
    row_ids=st.booleans(),
    metadata=st.booleans(),
    large=st.booleans(),
)


@settings(max_examples=20, deadline=None)
@example(seed=492, row_ids=True, metadata=False, large=True)  # a row ID is reused by another key
@any_arrival
def test_merged_and_history_tables_do_not_depend_on_arrival_order(
    seed: int, row_ids: bool, metadata: bool, large: bool
) -> None:
    assert_independent_of_arrival(seed, row_ids, metadata, large)


@pytest.mark.soak
@settings(max_examples=500, deadline=None)
@any_arrival
def test_five_hundred_orders_of_arrival(
    seed: int, row_ids: bool, metadata: bool, large: bool
) -> None:
    assert_independent_of_arrival(seed, row_ids, metadata, large)


def assert_independent_of_arrival(seed: int, row_ids: bool, metadata: bool, large: bool) -> None:
    random = Random(seed)
    table = Table(random, row_ids)
    table.run(random.randint(4, 25))
    with TemporaryDirectory() as lake, merged_as_if(large):
        plan = MergePlan(
            lake,
            log="log",
            merged="merged",
            history="history",
            tombstones="_tombstones",
            app="app",
            metadata=metadata,
        )
        committer = DeltaRsCommitter(lake)
        for batch in arrivals(table, random):
            write_deltalake(Path(lake, "log"), pa.Table.from_pylist(batch, LOG), mode="append")
            if random.random() < 0.7:
                merge_table(plan, committer)
            if random.random() < 0.7:
                merge_history(plan, committer)
        merge_table(plan, committer)
        merge_history(plan, committer)
        # A merge that is run again changes nothing.
        for again in (merge_table(plan, committer), merge_history(plan, committer)):
            assert isinstance(again, TableMerged)
            assert again.was_up_to_date

        merged = DeltaTable(Path(lake, "merged")).to_pyarrow_table()
        assert plain(merged.to_pylist()) == table.states[-1]
        assert ("_order" in merged.column_names) == metadata

        history = DeltaTable(Path(lake, "history")).to_pyarrow_table().to_pylist()
        assert plain([version for version in history if version["_is_current"]]) == table.states[-1]
        log = ChangeLog.open(lake, "log")
        assert log is not None
        for number, rows in enumerate(table.states):
            timestamp = BEGAN + timedelta(seconds=number)
            cutoff = Cutoff(timestamp=timestamp)
            assert plain(rows_as_of(log, key_of_log(log, None, cutoff), cutoff).to_pylist()) == rows
            then = [
                version
                for version in history
                if version["_valid_from"] <= timestamp
                and (version["_valid_to"] is None or timestamp < version["_valid_to"])
            ]
            assert plain(then) == rows
