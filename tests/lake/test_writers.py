"""The writers of a lake: all pipelines of all its ledgers."""

from __future__ import annotations

from pathlib import Path

from headgate.lake.staged_files import writer_of
from headgate.lake.writers import LakeWriters
from tests.engine.games import GamesLake, record


def test_all_ledgers_of_a_lake_are_found(tmp_path: Path) -> None:
    for name, ledger in (("games", "ledger"), ("other", "ledger_of_other")):
        GamesLake(tmp_path, name=name, ledger=ledger).land([record("chess", 1)])
    writers = LakeWriters.of(str(tmp_path / "lake"), "ledger")
    assert sorted(writers.ledgers) == ["ledger", "ledger_of_other"]
    assert writers.users_of("silver_chess", "ledger", "games") == [
        "pipeline other of ledger_of_other"
    ]
    assert writers.staged().writers.keys() == {
        writer_of(f"headgate:{name}") for name in ("games", "other")
    }


def test_pipelines_of_one_name_have_landed_what_both_have(tmp_path: Path) -> None:
    """Their files have the same names."""
    first, second = GamesLake(tmp_path), GamesLake(tmp_path, ledger="ledger_2")
    first.land([record("chess", 1)])
    writer = writer_of("headgate:games")
    assert LakeWriters.of(str(first.path), "ledger").staged().writers[writer].landed == 0
    second.ledger.take_over("a test")
    assert LakeWriters.of(str(first.path), "ledger").staged().writers[writer].landed is None


def test_a_lake_without_tables_has_no_writers(tmp_path: Path) -> None:
    assert LakeWriters.of(str(tmp_path), "ledger").staged().writers == {}
