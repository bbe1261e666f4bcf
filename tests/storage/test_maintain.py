"""Maintenance and removal of tables in an object store, and how few requests they take."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from headgate.lab.object_store import ObjectStore
from headgate.lake.commit import Commit, Mark
from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.lake.expire import delete_expired, expired_versions
from headgate.lake.orphans import orphans_of_table
from headgate.lake.parquet import stage_rows
from headgate.lake.snapshot import Snapshot
from headgate.lake.staged_files import staged_prefix, writer_of
from headgate.lake.storage import delete_files, delete_folder, find_files, write_file
from tests.lake.committer_contract import numbers

WEEK = timedelta(days=7)


def table_in(lake: str) -> Snapshot:
    table = Snapshot.open(lake, "chess")
    assert table is not None
    return table


def test_a_table_is_maintained_and_deleted(
    storage: ObjectStore, new_lake: Callable[[], str]
) -> None:
    lake = new_lake()
    committer = DeltaRsCommitter(lake)
    for number in range(45):
        file = stage_rows(lake, "chess", numbers(number))
        marks, often = (Mark("app", number),), {"delta.checkpointInterval": "10"}
        committer.commit(Commit("chess", file.schema, (file,), marks, properties=often))
        if number % 16 == 15:
            assert committer.compact("chess", 1 << 20, 8).into == 1
    orphan = f"{staged_prefix(writer_of('headgate:games'), 3)}a.parquet"
    write_file(f"{lake}/chess/{orphan}", b"x")
    table = table_in(lake)
    assert len(table.sizes) == 14
    expired = expired_versions(table, WEEK, 20)
    assert expired.versions >= 15
    delete_expired(table, expired)
    left = orphans_of_table(table_in(lake), {writer_of("headgate:games"): 3}, ())
    assert [file.path for file in left] == [orphan]
    delete_files(table.url, [file.path for file in left])
    assert sorted(table_in(lake).rows()["n"].to_pylist()) == [*range(45)]
    names = {file.path for file in find_files(table.url)}
    assert not names & {*expired.files, *expired.log_files, orphan}
    delete_folder(lake)
    assert find_files(lake) == []
    assert Snapshot.open(lake, "chess") is None
