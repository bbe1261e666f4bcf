"""Maintenance and removal of tables in an object store, and how few requests they take."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from headgate.lab.object_store import ObjectStore
from headgate.lake import orphans
from headgate.lake.commit import Commit, Mark
from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.lake.maintain import MaintenancePolicy, apply_plan, plan_maintenance
from headgate.lake.parquet import stage_rows
from headgate.lake.snapshot import Snapshot
from headgate.lake.staged_files import staged_prefix, writer_of
from headgate.lake.storage import delete_folder, find_files, write_file
from headgate.lake.writers import StagedFiles, Writer
from tests.lake.committer_contract import numbers

WEEK = timedelta(days=7)


def table_in(lake: str) -> Snapshot:
    table = Snapshot.open(lake, "chess")
    assert table is not None
    return table


def test_a_table_is_maintained_and_deleted(
    storage: ObjectStore, new_lake: Callable[[], str], monkeypatch: pytest.MonkeyPatch
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
    monkeypatch.setattr(orphans, "_HOUR", -1.0)
    table = table_in(lake)
    assert len(table.sizes) == 14
    staged = StagedFiles({writer_of("headgate:games"): Writer(3, False)})
    plan = plan_maintenance(table, MaintenancePolicy(keep=WEEK, max_versions=20), staged)
    assert plan.versions >= 15
    assert orphan in [file.path for file in plan.deletions]
    assert apply_plan(committer, plan).error is None
    assert sorted(table_in(lake).rows()["n"].to_pylist()) == [*range(45)]
    names = {file.path for file in find_files(table.url)}
    assert not names & {file.path for file in plan.deletions}
    delete_folder(lake)
    assert find_files(lake) == []
    assert Snapshot.open(lake, "chess") is None
