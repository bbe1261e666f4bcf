"""Totals stand for the rows before them: all reads are the same with and without them."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.lake import ledger as ledger_module
from headgate.lake.ledger import Ledger
from headgate.lake.ledger_entries import (
    BatchEntry,
    Entry,
    ExpectationEntry,
    GoldEntry,
    Kind,
    LostEntry,
    MergeEntry,
    PendingEntry,
    SchemaEntry,
    TableEntry,
)
from headgate.lake.ledger_snapshot import LedgerSnapshot, TableTotals
from headgate.lake.staged import StagedFile
from headgate.lake.streams import replay_name
from headgate.lake.tables import CommitConflict
from headgate.schema.changes import AddColumn, DropColumn
from tests.lake.recorded import complete

NAMES = st.sampled_from(["chess", "go"])
NUMBERS = st.integers(0, 9)
IDS = st.lists(st.integers(1, 4), max_size=3, unique=True).map(sorted).map(tuple)
FILE = StagedFile("chess", "part-1.parquet", 10, 1, "{}", b"")
ENTRIES: st.SearchStrategy[Entry] = st.one_of(
    st.builds(
        TableEntry,
        table=NAMES,
        rows=NUMBERS,
        table_version=NUMBERS,
        bytes=NUMBERS,
        files=NUMBERS,
        route=st.sampled_from([None, "a", "b"]),
        schema_ids=IDS,
        lineages=st.sampled_from([(), ("x",), ("x", "y")]),
    ),
    st.builds(
        SchemaEntry.of, NAMES, st.sampled_from([AddColumn("n", "int"), DropColumn("m")]), IDS
    ),
    st.builds(PendingEntry, st.just("chess"), NUMBERS, NUMBERS, st.just(FILE), st.just("no")),
    st.builds(LostEntry, st.just("chess"), NUMBERS, NUMBERS, st.just(FILE), st.just("gone")),
    st.builds(GoldEntry, NAMES, NUMBERS, NUMBERS),
    st.builds(GoldEntry, NAMES, st.just(0), st.none(), st.sampled_from(["no", "still no"])),
    st.builds(MergeEntry, NAMES, NUMBERS, NUMBERS, NAMES, NUMBERS, st.just("spark"), NUMBERS),
    st.builds(ExpectationEntry, NAMES, NAMES, st.sampled_from(["warn", "fail"]), NUMBERS, NUMBERS),
)


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write totals, and compact, at every third version."""
    monkeypatch.setattr(ledger_module, "_TOTALS_EVERY", 3)
    monkeypatch.setattr(ledger_module, "_COMPACTED_EVERY", 3)


def everything_in(ledger: Ledger) -> dict[str, Any]:
    """All that can be read, without times."""
    snapshot, progress = ledger.snapshot(), ledger.progress()
    return {
        "progress": progress,
        "tables": _totals(snapshot.tables()),
        "landed": _totals(snapshot.tables(Kind.TABLE)),
        "versions": snapshot.table_versions(),
        "ids": snapshot.schema_ids(),
        "history": snapshot.schema_history(),
        "changes": [(row.version, row.entry) for row in snapshot.entries(SchemaEntry)],
        "lost": [(row.version, row.entry) for row in snapshot.entries(LostEntry)],
        "pending": [row.entry for row in snapshot.pending()],
        "expectations": snapshot.expectations(),
        "batches": (snapshot.batches().count, snapshot.batches().version),
        "gold": _outcomes(snapshot, GoldEntry),
        "merged": _outcomes(snapshot, MergeEntry),
    }


def _totals(tables: dict[str, TableTotals]) -> dict[str, dict[str, Any]]:
    return {name: {**vars(one), "at": None} for name, one in tables.items()}


def _outcomes(snapshot: LedgerSnapshot, kind: type[Any]) -> list[Any]:
    """The last outcomes; sums apart, which only totals of tables need."""
    return [
        (row.version, row.entry.table, row.entry.table_version, row.entry.error)
        for row in snapshot.last_outcomes(kind)
    ]


@settings(deadline=None, max_examples=6)
@given(st.lists(st.lists(ENTRIES, max_size=4), min_size=1, max_size=8))
def test_reads_are_the_same_with_and_without_totals(batches: list[list[Entry]]) -> None:
    found = []
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        for every in (3, 1_000):
            patch.setattr(ledger_module, "_TOTALS_EVERY", every)
            patch.setattr(ledger_module, "_COMPACTED_EVERY", every)
            ledger = Ledger(folder, f"ledger_{every}", "games")
            ledger.start("query", 0)
            for version, drawn in enumerate(batches):
                # A batch has one row of each kind for a table.
                entries = {(type(one), getattr(one, "table", "")): one for one in drawn}.values()
                complete(ledger, version, version, [*entries, BatchEntry(1, None, version)])
                if version % 2:
                    ledger.add(version, [GoldEntry("later", version, version)])
            found.append(everything_in(ledger))
    assert found[0] == found[1]


@pytest.mark.usefixtures("often")
def test_pipelines_have_totals_of_their_own(tmp_path: Path) -> None:
    games, replays = (
        Ledger(str(tmp_path), "ledger", name) for name in ("games", replay_name("games"))
    )
    for version in range(4):
        complete(games, version, version, [TableEntry("chess", 1, version), BatchEntry(1)])
    complete(replays, 0, 0, [TableEntry("chess", 10, 9), BatchEntry(10)])
    both = games.snapshot().of("games", replay_name("games"))
    assert both.tables()["chess"].rows == 14
    assert replays.snapshot().tables()["chess"].rows == 10


@pytest.mark.usefixtures("often")
def test_reads_do_not_touch_files_from_before_the_totals(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path), "ledger", "games")
    for version in range(7):
        complete(ledger, version, version, [TableEntry("chess", 1, version), BatchEntry(1)])
    table = DeltaTable(str(tmp_path / "ledger"))
    added = table.get_add_actions(flatten=True)
    newest = dict(zip(added["path"].to_pylist(), added["max.version"].to_pylist(), strict=True))
    for path, version in newest.items():
        if version < 6:
            (tmp_path / "ledger" / path).unlink()
    assert ledger.snapshot().tables()["chess"].rows == 7
    assert ledger.snapshot().batches().count == 7


@pytest.mark.usefixtures("often")
def test_ledger_stays_small_however_many_batches_it_has(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path), "ledger", "games")
    live = []
    for version in range(31):
        complete(ledger, version, version, [TableEntry("chess", 1, version), BatchEntry(1)])
        live.append(len(DeltaTable(str(tmp_path / "ledger")).file_uris()))
    assert max(live) <= 6
    assert ledger.snapshot().batches().count == 31
    found = DeltaTable(str(tmp_path / "ledger")).to_pyarrow_table()
    details = found.filter([kind is None for kind in found["last_version"].to_pylist()])
    assert sorted(details["version"].to_pylist()) == sorted([*range(31)] * 2)


@pytest.mark.usefixtures("often")
def test_compaction_that_fails_does_not_fail_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(str(tmp_path), "ledger", "games")
    monkeypatch.setattr(ledger._committer, "compact", _conflict)
    for version in range(4):
        complete(ledger, version, version, [BatchEntry(1)])
    assert ledger.landed() == 3


def _conflict(table: str, size: int) -> None:
    raise CommitConflict(table)
