from __future__ import annotations

from itertools import chain

from headgate.envelopes.datastream.changes import METADATA
from tests.cdc.changes import PAYLOAD, Change, Rows, case, tables


def _folded(changes: list[Change]) -> Rows:
    """Rows after all changes in the order in which they were made, backfills first."""
    rows: Rows = {}
    for change in sorted(changes, key=lambda change: not change.is_backfill):
        if change.is_deleted:
            rows.pop(change.key, None)
        else:
            rows[change.key] = change.columns
    return rows


def test_ordered_changes_fold_to_the_rows_of_the_database() -> None:
    for seed in range(300):
        made = case(seed, fail_over=seed % 2 == 1)
        assert _folded(made.changes) == made.rows


def test_every_change_arrives_at_least_once() -> None:
    for seed in range(100):
        made = case(seed)
        assert set(map(id, chain.from_iterable(made.batches))) == set(map(id, made.changes))
        assert all(made.batches)


def test_cases_cover_what_makes_ordering_hard() -> None:
    cases = [case(seed) for seed in range(200)]
    changes = [change for made in cases for change in made.changes]
    kinds = {change.change_type for change in changes}
    assert kinds == {"INSERT", "UPDATE", "DELETE", "UPDATE-DELETE", "UPDATE-INSERT"}
    files = [{change.log_file for change in made.changes} for made in cases]
    assert any({"mysql-bin.999999", "mysql-bin.1000000"} <= names for names in files)
    for made in cases:
        assert any(change.is_backfill for change in made.changes) or not made.rows
    left_and_taken = [
        change
        for made in cases
        for change in made.changes
        for other in made.changes
        if change.change_type == "UPDATE-DELETE"
        and other.change_type == "UPDATE-INSERT"
        and (change.key, change.log_file, change.log_position)
        == (other.key, other.log_file, other.log_position)
    ]
    assert left_and_taken
    assert any(made.batches != [made.changes] for made in cases)


def test_seed_determines_the_case() -> None:
    assert case(11) == case(11)
    assert case(11) != case(12)


def test_tables_have_a_row_for_each_change() -> None:
    made = case(5)
    metadata, payload = tables(made.changes)
    assert metadata.schema == METADATA
    assert payload.schema == PAYLOAD
    assert payload["id"].to_pylist() == [change.key for change in made.changes]
    assert metadata["_log_file"].to_pylist() == [change.log_file for change in made.changes]
