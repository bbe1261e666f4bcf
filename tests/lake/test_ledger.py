from __future__ import annotations

import json
import shutil
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import LandingError
from headgate.lake.ledger import Ledger, Pending
from headgate.lake.ledger_entries import (
    ENTRY_TYPES,
    LEDGER,
    MAX_ERROR,
    BatchEntry,
    Entry,
    ExpectationEntry,
    GoldEntry,
    Kind,
    MergeEntry,
    PendingEntry,
    QuarantineEntry,
    SchemaEntry,
    StartEntry,
    TableEntry,
    columns_of,
)
from headgate.lake.ledger_snapshot import LedgerSnapshot
from headgate.lake.staged import ExpectationResult, StagedFile
from headgate.lake.streams import replay_name
from headgate.schema.changes import DropColumn, SchemaChange, change_types
from tests.lake.recorded import all_rows, complete
from tests.lake.staged import staged


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(str(tmp_path), "ledger", "games")


def waits(version: int, file: StagedFile) -> PendingEntry:
    return PendingEntry(file.table, file.rows, version, file, "no")


DONE = BatchEntry(0)


def test_pipeline_that_never_ran_has_no_progress(ledger: Ledger) -> None:
    assert ledger.progress() is None
    assert ledger.landed() is None
    assert ledger.table_versions() == {}
    assert all_rows(ledger) == []
    snapshot = ledger.snapshot()
    assert (snapshot.tables(), snapshot.pending(), snapshot.expectations()) == ({}, [], ())
    assert snapshot.batches().count == 0


def test_started_checkpoint_is_known(ledger: Ledger) -> None:
    ledger.start("query-1", 0)
    progress = ledger.progress()
    assert progress is not None
    assert (progress.query_id, progress.first_version) == ("query-1", 0)
    assert (progress.landed, progress.pending) == (None, ())


def test_complete_batch_records_where_the_source_ended(ledger: Ledger) -> None:
    ledger.start("query-1", 0)
    for version in range(3):
        entry = BatchEntry(0, version * 10, {"games": {"0": version * 10 + 10}})
        complete(ledger, version, version, [entry])
    progress = ledger.progress()
    assert progress is not None
    assert (progress.landed, progress.ended_at) == (2, {"games": {"0": 30}})
    assert ledger.landed() == 2


def test_batch_records_what_its_positions_count_in(ledger: Ledger) -> None:
    ledger.start("query-1", 0)
    complete(ledger, 0, 0, [BatchEntry(0, 0, {"games": {"0": 1}}, {"games": "first id"})])
    complete(ledger, 1, 1, [BatchEntry(0, 0, {"games": {"0": 2}}, {"games": "second id"})])
    progress = ledger.progress()
    assert progress is not None
    assert progress.source_ids == {"games": "second id"}


def test_ledger_of_an_earlier_version_has_no_ids(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path), "ledger", "games")
    ledger.start("query-1", 0)
    complete(ledger, 0, 0, [BatchEntry(0, 0, {"games": {"0": 1}})])
    rows = DeltaTable(tmp_path / "ledger").to_pyarrow_table().drop_columns(["source_ids"])
    shutil.rmtree(tmp_path / "ledger")
    done = CommitProperties(app_transactions=[Transaction(ledger.app, 0)])
    write_deltalake(tmp_path / "ledger", rows, commit_properties=done)

    progress = ledger.progress()
    assert progress is not None
    assert (progress.landed, progress.ended_at) == (0, {"games": {"0": 1}})
    assert progress.source_ids == {}
    complete(ledger, 1, 1, [BatchEntry(0, 0, {"games": {"0": 2}}, {"games": "id"})])
    progress = ledger.progress()
    assert progress is not None
    assert progress.source_ids == {"games": "id"}


def test_table_versions_are_those_of_each_tables_last_batch(ledger: Ledger) -> None:
    for version, table in enumerate(["chess", "go", "chess"]):
        complete(ledger, version, version, [TableEntry(table, 1, version + 5), DONE])
    assert ledger.table_versions() == {"chess": 7, "go": 6}


def test_table_versions_are_the_last_even_if_a_table_was_recreated(ledger: Ledger) -> None:
    for version, table_version in enumerate([7, 0]):
        complete(ledger, version, version, [TableEntry("chess", 1, table_version), DONE])
    assert ledger.table_versions() == {"chess": 0}


def test_newest_checkpoint_counts(ledger: Ledger) -> None:
    ledger.start("query-1", 0)
    complete(ledger, 0, 0, [DONE])
    ledger.start("query-2", 1)
    progress = ledger.progress()
    assert progress is not None
    assert (progress.query_id, progress.first_version, progress.landed) == ("query-2", 1, 0)


def test_checkpoint_started_twice_before_the_first_batch_is_the_later_one(ledger: Ledger) -> None:
    ledger.start("query-1", 0)
    ledger.start("query-2", 0)
    progress = ledger.progress()
    assert progress is not None
    assert progress.query_id == "query-2"


def test_pending_files_are_those_of_the_newest_batch(tmp_path: Path, ledger: Ledger) -> None:
    old, new = staged(tmp_path, "chess", {"n": [1]}), staged(tmp_path, "go", {"n": [2]})
    ledger.start("query-1", 0)
    complete(ledger, 0, 0, [waits(0, old), DONE])
    complete(ledger, 1, 1, [waits(1, new), waits(0, old), DONE])
    progress = ledger.progress()
    assert progress is not None
    assert set(progress.pending) == {Pending(1, new), Pending(0, old)}

    complete(ledger, 2, 2, [DONE])
    progress = ledger.progress()
    assert progress is not None
    assert progress.pending == ()


def test_pending_file_is_recorded_once(tmp_path: Path, ledger: Ledger) -> None:
    file = staged(tmp_path, "chess", {"n": [1]})
    ledger.start("query-1", 0)
    complete(ledger, 0, 0, [waits(0, file), DONE])
    complete(ledger, 0, 0, [waits(0, file), waits(0, file), DONE])
    progress = ledger.progress()
    assert progress is not None
    assert progress.pending == (Pending(0, file),)


def test_file_that_landed_after_its_batch_is_no_longer_pending(
    tmp_path: Path, ledger: Ledger
) -> None:
    file = staged(tmp_path, "chess", {"n": [1]})
    ledger.start("query-1", 0)
    complete(ledger, 0, 0, [waits(0, file), DONE])
    complete(ledger, 0, 0, [TableEntry("chess", 1, 0)])
    progress = ledger.progress()
    assert progress is not None
    assert (progress.landed, progress.pending) == (0, ())


def test_rows_between_batches_do_not_hide_pending_files(tmp_path: Path, ledger: Ledger) -> None:
    file = staged(tmp_path, "chess", {"n": [1]})
    ledger.start("query-1", 0)
    complete(ledger, 0, 0, [waits(0, file), DONE])
    ledger.add(0, [MergeEntry("shop", 1, 1, "log_shop", 1, "spark"), GoldEntry("gold", 1, 1)])
    ledger.start("query-2", 1)
    progress = ledger.progress()
    assert progress is not None
    assert progress.pending == (Pending(0, file),)


def test_pipelines_of_one_lake_do_not_see_each_other(tmp_path: Path, ledger: Ledger) -> None:
    other = Ledger(str(tmp_path), "ledger", "shop")
    ledger.start("query-1", 0)
    complete(ledger, 0, 0, [waits(0, staged(tmp_path, "chess", {"n": [1]})), DONE])
    assert other.progress() is None
    other.start("query-2", 0)
    progress = other.progress()
    assert progress is not None
    assert (progress.query_id, progress.landed, progress.pending) == ("query-2", None, ())


def test_entries_are_filtered_by_kind_table_and_version(ledger: Ledger) -> None:
    for version in range(3):
        entries = [TableEntry(table, version, version) for table in ("chess", "go")]
        complete(ledger, version, version, [*entries, DONE])
    found = ledger.snapshot().entries(TableEntry, table="go", since=1)
    assert [(row.entry.table, row.version, row.entry.rows) for row in found] == [
        ("go", 1, 1),
        ("go", 2, 2),
    ]
    assert len(ledger.snapshot().entries(BatchEntry)) == 3


def test_snapshot_does_not_see_later_batches(ledger: Ledger) -> None:
    complete(ledger, 0, 0, [DONE])
    snapshot = ledger.snapshot()
    complete(ledger, 1, 1, [DONE])
    assert snapshot.batches().version == 0
    assert ledger.snapshot().batches().version == 1


def test_tables_have_the_totals_of_stream_and_replays(tmp_path: Path, ledger: Ledger) -> None:
    replays = Ledger(str(tmp_path), "ledger", replay_name("games"))
    for version in range(3):
        entry = TableEntry("chess", 10, version, 100, 2, "chess", (version,), ("a", "b")[:version])
        complete(ledger, version, version, [entry, DONE])
    complete(replays, 7, 7, [TableEntry("chess", 1, 3, 10, 1, "chess"), DONE])
    names = "games", replay_name("games")
    snapshot = LedgerSnapshot.open(str(tmp_path), "ledger", *names)
    (chess,) = snapshot.tables().values()
    assert (chess.rows, chess.bytes, chess.files) == (31, 310, 7)
    assert (chess.table_version, chess.version) == (3, 2)
    assert (chess.route, chess.routes, chess.lineages) == ("chess", 1, ("a", "b"))
    assert snapshot.of(replay_name("games")).tables()["chess"].version == 7
    assert snapshot.of("games").tables(since=2)["chess"].rows == 10
    assert snapshot.schema_ids() == {"chess": {0, 1, 2}}


def test_derived_table_that_only_failed_has_no_totals(ledger: Ledger) -> None:
    ledger.add(0, [GoldEntry("gold_a", 0, None, "no"), GoldEntry("gold_b", 3, 0)])
    tables = ledger.snapshot().tables()
    assert {name: one.kinds for name, one in tables.items()} == {"gold_b": {Kind.GOLD}}


def test_last_update_and_last_failure_of_a_derived_table_are_found(ledger: Ledger) -> None:
    for entry in (
        GoldEntry("gold", 1, 0),
        GoldEntry("gold", 0, None, "first"),
        GoldEntry("gold", 2, 1),
        GoldEntry("gold", 0, None, "second"),
    ):
        ledger.add(0, [entry])
    assert [row.entry for row in ledger.snapshot().last_outcomes(GoldEntry)] == [
        GoldEntry("gold", 2, 1),
        GoldEntry("gold", 0, None, "second"),
    ]


def test_latest_row_of_each_table_is_the_last_written(ledger: Ledger) -> None:
    for version, table in enumerate(["shop", "cart", "shop"]):
        ledger.add(version, [MergeEntry(table, 1, version, f"log_{table}", version, "delta-rs")])
    found = ledger.snapshot().last_outcomes(MergeEntry)
    assert {row.entry.table: row.entry.log_version for row in found} == {"shop": 2, "cart": 1}


def test_expectations_are_summed(ledger: Ledger) -> None:
    for version in range(2):
        complete(
            ledger,
            version,
            version,
            [
                ExpectationEntry("chess", "small", "warn", 10, 1),
                ExpectationEntry("go", "small", "quarantine", 5, 4),
                DONE,
            ],
        )
    assert ledger.snapshot().expectations() == (
        ExpectationResult("go", "small", "quarantine", 10, 8),
        ExpectationResult("chess", "small", "warn", 20, 2),
    )


def test_schema_history_has_schemas_and_dropped_columns(ledger: Ledger) -> None:
    dropped = SchemaEntry.of("chess", DropColumn("name"), (7, 9))
    complete(ledger, 0, 0, [dropped, DONE])
    history = ledger.snapshot().schema_history().of_table("chess")
    assert (history.schema_ids, history.dropped) == ({7, 9}, {"name"})


def test_snapshot_outlives_its_files(tmp_path: Path, ledger: Ledger) -> None:
    """Someone compacts the ledger and vacuums it, without any time to keep old files."""
    for version in range(3):
        ledger.complete(version, version, [BatchEntry(1)], version - 1 if version else None)
    snapshot = ledger.snapshot()
    table = DeltaTable(tmp_path / "ledger")
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert [row.version for row in snapshot.entries(BatchEntry)] == [0, 1, 2]


def test_unreadable_ledger_is_an_error_of_the_lake(tmp_path: Path, ledger: Ledger) -> None:
    complete(ledger, 0, 0, [DONE])
    for file in Path(tmp_path, "ledger", "_delta_log").iterdir():
        file.write_text("nonsense")
    with pytest.raises(LandingError) as caught:
        ledger.snapshot()
    assert caught.value.code == "lake-unreadable"


def test_ledger_that_lost_a_file_is_an_error_of_the_lake(tmp_path: Path, ledger: Ledger) -> None:
    complete(ledger, 0, 0, [DONE])
    for file in Path(tmp_path, "ledger").glob("*.parquet"):
        file.unlink()
    with pytest.raises(LandingError) as caught:
        ledger.snapshot().entries(BatchEntry)
    assert caught.value.code == "lake-unreadable"


def test_every_column_is_described_and_filled_by_some_entry() -> None:
    filled = {name for kind in ENTRY_TYPES for name in columns_of(kind)}
    by_the_ledger = {"pipeline", "kind", "version", "batch", "at", "last_version", "batches"}
    assert filled | by_the_ledger == set(LEDGER.names)
    assert all(field.metadata[b"comment"] for field in LEDGER)
    assert [kind.kind for kind in ENTRY_TYPES] == list(Kind)


def test_columns_have_their_descriptions_in_the_table(tmp_path: Path, ledger: Ledger) -> None:
    ledger.start("query-1", 0)
    complete(ledger, 0, 0, [DONE])
    columns = DeltaTable(str(tmp_path / "ledger")).schema().fields
    assert [one.name for one in columns] == LEDGER.names
    assert all(one.metadata["comment"] for one in columns)


def test_statistics_are_only_of_columns_that_reads_filter_by(
    tmp_path: Path, ledger: Ledger
) -> None:
    complete(ledger, 0, 0, [GoldEntry("gold", 0, None, "x" * MAX_ERROR), DONE])
    (added,) = (
        action["add"]
        for line in Path(tmp_path, "ledger", "_delta_log", f"{0:020}.json").read_text().splitlines()
        if "add" in (action := json.loads(line))
    )
    assert json.loads(added["stats"])["maxValues"].keys() == {
        "pipeline",
        "kind",
        "version",
        "at",
        "table",
    }


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NUMBERS = st.integers(0, 2**63 - 1)
COUNTS = st.dictionaries(NAMES, NUMBERS, max_size=3)
IDS = st.lists(NUMBERS, max_size=3).map(tuple)
OFFSETS = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
FILES = st.builds(
    StagedFile, NAMES, NAMES, NUMBERS, NUMBERS, NAMES, st.binary(), st.none() | NAMES, IDS
)
CHANGES: st.SearchStrategy[SchemaChange] = st.sampled_from(sorted(change_types(), key=str)).flatmap(
    lambda kind: st.builds(
        kind,
        **{
            one.name: NUMBERS if one.name == "columns" else NAMES
            for one in fields(kind)
            if one.name != "outcome"
        },
    )
)
ENTRIES: st.SearchStrategy[Entry] = st.one_of(
    st.builds(StartEntry, NAMES),
    st.builds(
        TableEntry,
        table=NAMES,
        rows=NUMBERS,
        table_version=NUMBERS,
        bytes=NUMBERS,
        files=NUMBERS,
        route=st.none() | NAMES,
        schema_ids=IDS,
        lineages=st.lists(NAMES, max_size=3).map(tuple),
        discarded=COUNTS,
        unknown_fields=NUMBERS,
    ),
    st.builds(SchemaEntry.of, NAMES, CHANGES, IDS, st.none() | NAMES, st.none() | NUMBERS),
    st.builds(PendingEntry, NAMES, NUMBERS, NUMBERS, FILES, NAMES),
    st.builds(BatchEntry, NUMBERS, OFFSETS, OFFSETS),
    st.builds(GoldEntry, NAMES, NUMBERS, st.none() | NUMBERS, st.none() | NAMES),
    st.builds(MergeEntry, NAMES, *[NUMBERS] * 2, NAMES, NUMBERS, NAMES, *[NUMBERS] * 3),
    st.builds(ExpectationEntry, NAMES, NAMES, st.sampled_from(["warn", "fail"]), NUMBERS, NUMBERS),
    st.builds(
        QuarantineEntry,
        NAMES,
        *[NUMBERS] * 2,
        NAMES,
        NUMBERS,
        COUNTS,
        st.dictionaries(NAMES, NAMES, max_size=3),
    ),
)


@settings(deadline=None, max_examples=40)
@given(st.lists(ENTRIES, max_size=6))
def test_every_entry_is_read_back_equal(entries: list[Entry]) -> None:
    with TemporaryDirectory() as folder:
        ledger = Ledger(folder, "ledger", "games")
        complete(ledger, 3, 1, entries)
        rows = all_rows(ledger)
    assert {(row.pipeline, row.version, row.batch) for row in rows} <= {("games", 3, 1)}
    for kind in ENTRY_TYPES:
        found = [row.entry for row in rows if type(row.entry) is kind]
        assert found == [entry for entry in entries if type(entry) is kind]


@given(CHANGES)
def test_every_schema_change_is_read_back_equal(change: SchemaChange) -> None:
    assert SchemaEntry.of("chess", change).schema_change == change


HOSTILE: list[Any] = ["'; DROP TABLE mine --", '"quoted"', "a\\b", "%_", "new\nline", "nul\0", "棋"]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_found_and_nothing_else(ledger: Ledger, name: str) -> None:
    complete(ledger, 0, 0, [TableEntry(name, 1, 0, route=name), TableEntry("chess", 2, 0), DONE])
    snapshot = ledger.snapshot()
    (row,) = snapshot.entries(TableEntry, table=name)
    assert (row.entry.table, row.entry.route, row.entry.rows) == (name, name, 1)
    assert snapshot.tables(Kind.TABLE, table=name).keys() == {name}
    assert snapshot.entries(TableEntry, table=f"{name}' OR 1=1 --") == []


def test_long_error_is_cut_and_an_unencodable_one_escaped(tmp_path: Path, ledger: Ledger) -> None:
    file = staged(tmp_path, "chess", {"n": [1]})
    long = PendingEntry("chess", 1, 0, file, "é" * 100_000)
    # As of a file name that is not UTF-8.
    odd = GoldEntry("gold", 0, None, "no such file: caf\udce9")
    complete(ledger, 0, 0, [long, odd, DONE])
    snapshot = ledger.snapshot()
    assert snapshot.pending()[0].entry.error == "é" * MAX_ERROR
    assert snapshot.last_outcomes(GoldEntry)[0].entry.error == "no such file: caf\\udce9"
