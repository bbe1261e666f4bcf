from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.lake.staged import StagedFile
from headgate.lake.staged_files import refit_file
from headgate.schema.fit import fit
from tests.lake.staged import staged


def refitted(lake: Path, rows: pa.Table, table: pa.Schema) -> tuple[StagedFile, pa.Table]:
    file = staged(lake, "chess", rows)
    new = refit_file(str(lake), file, fit(file.schema, table))
    return new, pq.ParquetFile(lake / "chess" / new.path).read()


def test_values_are_cast_up(tmp_path: Path) -> None:
    rows = pa.table({"a": pa.array([-(2**31), None], pa.int32()), "b": pa.array([0.5, 1.5], "f4")})
    table = pa.schema([("a", pa.int64()), ("b", pa.float64())])
    file, found = refitted(tmp_path, rows, table)
    assert found.schema == file.schema == table
    assert found.to_pylist() == rows.to_pylist()


def test_nested_values_are_cast_up_and_missing_fields_filled(tmp_path: Path) -> None:
    small = pa.list_(pa.struct([("c", pa.string()), ("x", pa.int32())]))
    large = pa.list_(pa.struct([("x", pa.int64()), ("y", pa.string())]))
    rows = pa.table({"a": pa.array([[{"c": "n", "x": 1}], None, []], small)})
    _, found = refitted(tmp_path, rows, pa.schema([("a", large)]))
    assert found.to_pylist() == [{"a": [{"x": 1, "y": None, "c": "n"}]}, {"a": None}, {"a": []}]


def test_columns_get_the_names_of_the_table(tmp_path: Path) -> None:
    rows = pa.table({"a": ["x"], "B": [1]})
    file, found = refitted(tmp_path, rows, pa.schema([("a", pa.int32()), ("b", pa.int64())]))
    retyped, twin = found.column_names
    assert retyped == "a__string"
    assert twin.startswith("B__")
    assert json.loads(file.statistics)["minValues"] == {"a__string": "x", twin: 1}


def test_refitted_file_has_its_own_size_and_statistics(tmp_path: Path) -> None:
    old = staged(tmp_path, "chess", {"a": pa.array([1], pa.int32())})
    new = refit_file(str(tmp_path), old, fit(old.schema, pa.schema([("a", pa.int64())])))
    assert new.path != old.path
    assert (tmp_path / "chess" / old.path).is_file()
    assert new.size == (tmp_path / "chess" / new.path).stat().st_size
    assert (new.table, new.rows, new.route, new.schema_ids) == ("chess", 1, "chess", (1,))
