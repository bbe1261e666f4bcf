"""Verification of merged and history tables finds every difference from their logs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from headgate.cdc.compare import RowDifferences, WrongValue
from headgate.cdc.verify import TableVerified, verify
from headgate.lake.names import ChangeTableKind
from tests.cdc.change_lake import ChangeLake
from tests.cdc.changes import case
from tests.cdc.test_merged_is_the_database import land_all

MERGED, HISTORY, LOG = "theatre_seats", "history_theatre_seats", "log_theatre_seats"
SETTINGS = {"history": "history_{database}_{table}"}
CASES = [case(seed) for seed in range(40)]


@pytest.fixture(scope="module")
def landed(tmp_path_factory: pytest.TempPathFactory) -> ChangeLake:
    lake = ChangeLake(tmp_path_factory.mktemp("verify"), SETTINGS)
    land_all(lake, CASES)
    return lake


@pytest.fixture
def lake(landed: ChangeLake, tmp_path: Path) -> ChangeLake:
    """A copy that a test may damage."""
    copytree(landed.folder, tmp_path / "copy")
    return ChangeLake(tmp_path / "copy", SETTINGS)


def of(lake: ChangeLake, table: str) -> TableVerified:
    return next(result for result in verify(lake.pipeline) if result.table == table)


def differences(lake: ChangeLake, table: str) -> RowDifferences:
    found = of(lake, table).differences
    assert found is not None
    return found


def opened(lake: ChangeLake, table: str) -> DeltaTable:
    return DeltaTable(str(lake.path / table))


def one_row(lake: ChangeLake, table: str) -> pa.Table:
    rows = opened(lake, table).to_pyarrow_table()
    return rows.sort_by([("case_number", "ascending"), ("id", "ascending")]).slice(0, 1)


def append(lake: ChangeLake, table: str, rows: pa.Table) -> None:
    write_deltalake(str(lake.path / table), rows, mode="append")


@pytest.mark.parametrize("metadata", [True, False])
def test_random_cases_have_no_difference(tmp_path: Path, metadata: bool) -> None:
    lake = ChangeLake(tmp_path, {**SETTINGS, "merge": {"metadata": metadata}})
    land_all(lake, [case(seed) for seed in range(100, 180)])
    merged, history = verify(lake.pipeline)
    assert (merged.kind, history.kind) == (ChangeTableKind.MERGED, ChangeTableKind.HISTORY)
    for result in (merged, history):
        assert result.is_ok
        assert result.log_version == opened(lake, LOG).version()
        assert result.differences == RowDifferences(opened(lake, result.table).count())
        assert result.differences.rows


@pytest.mark.parametrize("table", [MERGED, HISTORY])
def test_missing_row_is_found(lake: ChangeLake, table: str) -> None:
    row = one_row(lake, table).to_pylist()[0]
    opened(lake, table).delete(f"_order = '{row['_order']}'")
    found = differences(lake, table)
    assert (found.missing, found.too_many, found.different) == (1, 0, 0)
    [example] = found.missing_rows
    assert {**example.key, **example.columns} == row


@pytest.mark.parametrize("table", [MERGED, HISTORY])
def test_extra_row_is_found(lake: ChangeLake, table: str) -> None:
    row = one_row(lake, table)
    at = row.schema.get_field_index("id")
    append(lake, table, row.set_column(at, row.schema.field("id"), pa.array([99], pa.int64())))
    found = differences(lake, table)
    assert (found.missing, found.too_many, found.different) == (0, 1, 0)
    assert found.rows_too_many[0].key["id"] == 99


@pytest.mark.parametrize("table", [MERGED, HISTORY])
def test_duplicate_row_is_found(lake: ChangeLake, table: str) -> None:
    append(lake, table, one_row(lake, table))
    found = differences(lake, table)
    assert (found.missing, found.too_many, found.different) == (0, 1, 0)


@pytest.mark.parametrize("table", [MERGED, HISTORY])
def test_different_row_is_found(lake: ChangeLake, table: str) -> None:
    row = one_row(lake, table).to_pylist()[0]
    opened(lake, table).update(
        predicate=f"_order = '{row['_order']}'", updates={"name": "NULL", "amount": "-1"}
    )
    found = differences(lake, table)
    assert (found.missing, found.too_many, found.different) == (0, 0, 1)
    [example] = found.different_rows
    assert example.key["id"] == row["id"]
    assert example.columns == {
        "name": WrongValue(row["name"], None),
        "amount": WrongValue(row["amount"], -1),
    }


def test_all_differences_are_counted_and_a_few_shown(lake: ChangeLake) -> None:
    rows = opened(lake, MERGED).to_pyarrow_table()
    gone = pc.count_distinct(rows.filter(pc.less(rows["case_number"], 5))["_order"]).as_py()
    opened(lake, MERGED).delete("case_number < 5")
    opened(lake, MERGED).update(predicate="case_number > 8", updates={"amount": "0 - amount"})
    other = pc.sum(pc.greater(rows["case_number"], 8)).as_py()
    found = differences(lake, MERGED)
    assert (found.missing, found.too_many, found.different) == (gone, 0, other)
    assert found.total == gone + other
    assert (len(found.missing_rows), len(found.different_rows)) == (5, 5)


@pytest.mark.parametrize(
    "update",
    [
        {"_valid_to": "_valid_to + INTERVAL '1 second'"},
        {"_is_current": "NOT _is_current"},
        {"_valid_from": "NULL"},
    ],
    ids=lambda update: next(iter(update)),
)
def test_version_with_a_wrong_end_is_found(lake: ChangeLake, update: dict[str, str]) -> None:
    rows = opened(lake, HISTORY).to_pyarrow_table()
    row = rows.filter(rows["_valid_to"].is_valid()).slice(0, 1).to_pylist()[0]
    opened(lake, HISTORY).update(predicate=f"_order = '{row['_order']}'", updates=update)
    found = differences(lake, HISTORY)
    assert (found.missing, found.too_many, found.different) == (0, 0, 1)
    assert list(found.different_rows[0].columns) == list(update)
    assert of(lake, MERGED).is_ok


def test_table_behind_its_log_is_ok(lake: ChangeLake) -> None:
    lake.merges = False
    before = opened(lake, LOG).version()
    land_all(lake, [case(7_000)])
    for result in verify(lake.pipeline):
        assert result.is_ok
        assert (result.log_version, result.behind) == (before, opened(lake, LOG).version() - before)
        assert result.behind > 0


def test_table_that_was_never_merged_is_ok(tmp_path: Path) -> None:
    lake = ChangeLake(tmp_path, merges=False)
    land_all(lake, [case(1)])
    [result] = verify(lake.pipeline)
    assert result.is_ok
    assert (result.log_version, result.differences) == (None, None)
    assert result.behind == opened(lake, LOG).version() + 1


def test_table_without_a_key_is_compared_by_change(tmp_path: Path) -> None:
    lake = ChangeLake(tmp_path)
    land_all(lake, [case(1)])
    log = opened(lake, LOG).to_pyarrow_table()
    at = log.schema.get_field_index("_primary_keys")
    without = log.set_column(
        at, log.schema.field(at), pa.nulls(len(log), log.schema.field(at).type)
    )
    write_deltalake(str(lake.path / LOG), without, mode="overwrite")
    (lake.path / MERGED).rename(tmp_path / "before")
    lake.run()
    [result] = verify(lake.pipeline)
    assert result.differences == RowDifferences(len(log))
    assert result.is_ok
    order = log["_order"][0].as_py()
    opened(lake, MERGED).update(predicate=f"_order = '{order}'", updates={"amount": "-1"})
    opened(lake, MERGED).delete(f"_order = '{log['_order'][1].as_py()}'")
    found = differences(lake, MERGED)
    assert (found.missing, found.too_many, found.different) == (1, 0, 1)


def test_changed_key_is_reported(lake: ChangeLake) -> None:
    keys = {"theatre.seats": ["id"]}
    other = ChangeLake(lake.folder, {**SETTINGS, "envelope": {"datastream": {"keys": keys}}})
    result = of(other, MERGED)
    assert (result.key, result.other_key, result.total) == (("case_number", "id"), ("id",), 1)
    assert not result.is_ok


def test_missing_column_is_reported(lake: ChangeLake) -> None:
    rows = opened(lake, MERGED).to_pyarrow_table().drop_columns(["amount"])
    schema = pa.schema(opened(lake, MERGED).schema())
    columns = pa.schema([field for field in schema if field.name != "amount"])
    write_deltalake(
        str(lake.path / MERGED), rows.cast(columns), mode="overwrite", schema_mode="overwrite"
    )
    result = of(lake, MERGED)
    assert (result.absent_columns, result.total, result.is_ok) == (("amount",), 1, False)


def lose_the_log(lake: ChangeLake) -> None:
    (lake.path / LOG).rename(lake.folder / "lost")


def lose_the_mark(lake: ChangeLake) -> None:
    rows = opened(lake, MERGED).to_pyarrow_table()
    (lake.path / MERGED).rename(lake.folder / "lost")
    write_deltalake(str(lake.path / MERGED), rows)


def lose_the_version(lake: ChangeLake) -> None:
    lake.merges = False
    land_all(lake, [case(7_000)])
    log = opened(lake, LOG)
    log.create_checkpoint()
    for file in (lake.path / LOG / "_delta_log").glob("*.json"):
        if int(file.stem) < log.version():
            file.unlink()


def lose_a_file(lake: ChangeLake) -> None:
    added = json.loads(pa.table(opened(lake, LOG).get_add_actions())["path"][0].as_py().join('""'))
    (lake.path / LOG / added).unlink()


@pytest.mark.parametrize(
    "lose",
    [lose_the_log, lose_the_mark, lose_the_version, lose_a_file],
    ids=lambda lose: lose.__name__,
)
def test_table_that_cannot_be_verified_is_not_ok(
    lake: ChangeLake, lose: Callable[[ChangeLake], None]
) -> None:
    lose(lake)
    result = of(lake, MERGED)
    assert result.trouble
    assert (result.total, result.is_ok) == (0, False)


def test_only_named_tables_are_verified(lake: ChangeLake) -> None:
    assert [result.table for result in verify(lake.pipeline, ["theatre.seats"])] == [
        MERGED,
        HISTORY,
    ]
