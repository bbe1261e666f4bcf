"""Records whose columns would fill the memory are decoded in parts, and land all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.config import Contract, UnknownFields
from headgate.engine import record_plan, stage_table
from headgate.formats import cells
from headgate.lake import parquet
from headgate.lake.ledger_entries import TableEntry
from headgate.testing.lake import stage_in_process
from tests.engine.games import HEAD, PLAIN, UNKNOWN, WIDER, GamesLake, extent, records, wrapped

N = b"\x08\x01"
NAMED = b"\x08\x01\x12\x01x"
EXTRA = b"\x08\x01\x1a\x01x"
BROKEN = b"\xff"
LISTS = HEAD + "{ int32 n = 1; repeated M m = 3; message M { int64 a = 1; int64 b = 2; } }"


@pytest.fixture
def lake(tmp_path: Path) -> GamesLake:
    return GamesLake(tmp_path, contract=Contract(unknown_fields=UnknownFields.KEEP))


def limit(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    for module in (cells, stage_table, record_plan):
        monkeypatch.setattr(module, "MAX_CELLS", most)


def values() -> list[bytes]:
    """Good and bad records of two routes and three schemas."""
    some = [(PLAIN, N), (WIDER, NAMED), (PLAIN, EXTRA), (PLAIN, BROKEN), (UNKNOWN, N)]
    return [
        wrapped(route, schema_id, payload)
        for _ in range(20)
        for route in ("chess", "go")
        for schema_id, payload in some
    ]


@pytest.mark.parametrize("most", [1, 3, 10, 50])
def test_records_land_the_same_in_parts(
    lake: GamesLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    whole = GamesLake(tmp_path / "whole", contract=lake.pipeline.contract)
    whole.start().land(extent(0), stage_in_process(records(values())))
    limit(monkeypatch, most)
    lake.start().land(extent(0), stage_in_process(records(values())))

    for table in ("silver_chess", "silver_go", "quarantine"):
        found, expected = ([_key(row) for row in one.rows(table)] for one in (lake, whole))
        assert sorted(found) == sorted(expected)
    for table in ("silver_chess", "silver_go"):
        (entry,) = _entries(lake, table)
        (same,) = _entries(whole, table)
        assert (entry.rows, entry.unknown_fields) == (same.rows, same.unknown_fields) == (60, 20)
        assert entry.files >= same.files


def _entries(lake: GamesLake, table: str) -> list[TableEntry]:
    return [row.entry for row in lake.ledger.snapshot().entries(TableEntry, table=table)]


def _key(row: dict[str, object]) -> tuple[str, ...]:
    names = ("_offset", "n", "name", "_unknown_fields", "reason")
    return tuple(repr(row.get(name)) for name in names)


@pytest.mark.parametrize("most", [30, 100, 1000])
def test_columns_in_memory_together_have_a_bounded_number_of_cells(
    lake: GamesLake, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """No more than the limit, and what is decoded next."""
    limit(monkeypatch, most)
    schema_id = lake.register("event", LISTS)
    payload = N + b"\x1a\x00" * 5
    written: list[int] = []
    write = parquet.write_parquet

    def counting(*arguments: object, **more: object) -> object:
        rows = arguments[3]
        written.append(cells.cells_of(rows.combine_chunks().to_batches()[0].columns))  # type: ignore[attr-defined]
        return write(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(stage_table, "write_parquet", counting)
    count = 200
    staged = stage_in_process(records([wrapped("chess", schema_id, payload)] * count))(lake.plan)
    assert sum(file.rows for file in staged if file.table == "silver_chess") == count
    origin = 8 * count
    assert max(written) <= 2 * most + origin
    assert len(written) >= 18 * count // (2 * most)
