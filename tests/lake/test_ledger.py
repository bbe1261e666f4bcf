from __future__ import annotations

from pathlib import Path

import pytest

from headgate.lake.ledger import Entry, Kind, Ledger, Pending
from headgate.lake.staged import StagedFile
from tests.lake.staged import staged


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(str(tmp_path), "ledger", "games")


def waits(version: int, file: StagedFile) -> Entry:
    detail = {"version": version, "file": file.to_json(), "error": "no"}
    return Entry(Kind.PENDING, table=file.table, rows=file.rows, detail=detail)


DONE = Entry(Kind.BATCH, rows=0, detail={"from": None, "to": None})


def test_pipeline_that_never_ran_has_no_progress(ledger: Ledger) -> None:
    assert ledger.progress() is None
    assert ledger.landed() is None
    assert ledger.rows(list(Kind)) == []


def test_checkpoint_that_was_taken_up_is_known(ledger: Ledger) -> None:
    ledger.start("query-1", 0)
    progress = ledger.progress()
    assert progress is not None
    assert (progress.query_id, progress.first_version) == ("query-1", 0)
    assert (progress.landed, progress.pending) == (None, ())


def test_complete_batch_tells_where_the_source_ended(ledger: Ledger) -> None:
    ledger.start("query-1", 0)
    for version in range(3):
        place = {"from": version * 10, "to": version * 10 + 10}
        ledger.complete(version, version, [Entry(Kind.BATCH, detail=place)])
    progress = ledger.progress()
    assert progress is not None
    assert (progress.landed, progress.ended_at) == (2, 30)
    assert ledger.landed() == 2


def test_table_versions_are_those_of_each_tables_last_batch(ledger: Ledger) -> None:
    for version, table in enumerate(["chess", "go", "chess"]):
        entry = Entry(Kind.TABLE, table=table, table_version=version + 5)
        ledger.complete(version, version, [entry, DONE])
    assert ledger.table_versions() == {"chess": 7, "go": 6}


def test_newest_checkpoint_counts(ledger: Ledger) -> None:
    ledger.start("query-1", 0)
    ledger.complete(0, 0, [DONE])
    ledger.start("query-2", 1)
    progress = ledger.progress()
    assert progress is not None
    assert (progress.query_id, progress.first_version, progress.landed) == ("query-2", 1, 0)


def test_checkpoint_taken_up_twice_before_the_first_batch_is_the_later_one(ledger: Ledger) -> None:
    ledger.start("query-1", 0)
    ledger.start("query-2", 0)
    progress = ledger.progress()
    assert progress is not None
    assert progress.query_id == "query-2"


def test_waiting_files_are_those_of_the_newest_batch(tmp_path: Path, ledger: Ledger) -> None:
    old, new = staged(tmp_path, "chess", {"n": [1]}), staged(tmp_path, "go", {"n": [2]})
    ledger.start("query-1", 0)
    ledger.complete(0, 0, [waits(0, old), DONE])
    ledger.complete(1, 1, [waits(1, new), waits(0, old), DONE])
    progress = ledger.progress()
    assert progress is not None
    assert set(progress.pending) == {Pending(1, new), Pending(0, old)}

    ledger.complete(2, 2, [DONE])
    progress = ledger.progress()
    assert progress is not None
    assert progress.pending == ()


def test_file_that_waits_is_told_once(tmp_path: Path, ledger: Ledger) -> None:
    file = staged(tmp_path, "chess", {"n": [1]})
    ledger.start("query-1", 0)
    ledger.complete(0, 0, [waits(0, file), DONE])
    ledger.complete(0, 0, [waits(0, file), DONE])
    progress = ledger.progress()
    assert progress is not None
    assert progress.pending == (Pending(0, file),)


def test_pipelines_of_one_lake_do_not_see_each_other(tmp_path: Path, ledger: Ledger) -> None:
    other = Ledger(str(tmp_path), "ledger", "shop")
    ledger.start("query-1", 0)
    ledger.complete(0, 0, [waits(0, staged(tmp_path, "chess", {"n": [1]})), DONE])
    assert other.progress() is None
    other.start("query-2", 0)
    progress = other.progress()
    assert progress is not None
    assert (progress.query_id, progress.landed, progress.pending) == ("query-2", None, ())


def test_rows_can_be_asked_by_kind_table_and_version(ledger: Ledger) -> None:
    for version in range(3):
        entries = [Entry(Kind.TABLE, table=table, rows=version) for table in ("chess", "go")]
        ledger.complete(version, version, [*entries, DONE])
    found = ledger.rows([Kind.TABLE], table="go", since=1)
    assert [(row["table"], row["version"], row["rows"]) for row in found] == [
        ("go", 1, 1),
        ("go", 2, 2),
    ]
    assert len(ledger.rows([Kind.BATCH])) == 3
