from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.lab.shop.simulate import (
    BinaryLog,
    DatabaseModel,
    ShopPlan,
    SimulatedShop,
    simulate_shop,
)
from tests.lab.shop.fold import Tables, folded_like, read_records, rows_of


def _files(landing: Path) -> list[Path]:
    return sorted(path for path in landing.rglob("*") if path.is_file())


def _run(plan: ShopPlan, model: DatabaseModel | None = None) -> SimulatedShop:
    *_, last = simulate_shop(plan, model)
    return last


@settings(max_examples=15, deadline=None)
@given(
    st.builds(
        ShopPlan,
        landing=st.just(Path()),
        changes=st.integers(1, 800),
        seed=st.integers(0, 2**32),
        backfill=st.booleans(),
        changes_per_file=st.integers(1, 50),
        writers=st.integers(1, 3),
        shuffled=st.booleans(),
        duplicates=st.sampled_from((0.0, 0.3)),
    ),
    st.integers(1_000, 10_000),
)
def test_changes_come_to_the_rows_of_the_database(plan: ShopPlan, roll_over: int) -> None:
    model = DatabaseModel(log=BinaryLog(roll_over, first_file=999_998))
    with TemporaryDirectory() as folder:
        plan = ShopPlan(**{**vars(plan), "landing": Path(folder)})
        last = _run(plan, model)
        records = read_records(_files(plan.landing))
    assert folded_like(model, records) == rows_of(model)
    assert len({each["uuid"] for each in records}) == last.changes + last.backfilled
    assert sum(last.tables.values()) == last.changes + last.backfilled


def test_json_files_come_to_the_same_rows(tmp_path: Path) -> None:
    model = DatabaseModel()
    _run(ShopPlan(tmp_path, 500, format="json"), model)
    assert folded_like(model, read_records(_files(tmp_path))) == _as_json(rows_of(model))


def test_every_kind_of_change_comes_in_a_few_hundred(tmp_path: Path) -> None:
    last = _run(ShopPlan(tmp_path, 500))
    assert set(last.kinds) == {"INSERT", "UPDATE", "UPDATE-INSERT", "UPDATE-DELETE", "DELETE"}
    assert set(last.tables) == {
        "customers",
        "products",
        "orders",
        "order_lines",
        "vouchers",
        "reviews",
    }
    assert last.schema_changes > 4
    assert 500 <= last.changes < 510
    assert last.backfilled == 50
    assert last.files == len(_files(tmp_path))


def test_log_rotates_on_the_way(tmp_path: Path) -> None:
    _run(ShopPlan(tmp_path, 300), DatabaseModel(log=BinaryLog(5_000)))
    logs = {each["source_metadata"]["log_file"] for each in read_records(_files(tmp_path))}
    assert {"", "mysql-bin.000001", "mysql-bin.000002"} < logs


def test_same_plan_gives_the_same_files(tmp_path: Path) -> None:
    contents = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        _run(ShopPlan(folder, 300, seed=7, shuffled=True, duplicates=0.2))
        contents.append({str(f.relative_to(folder)): f.read_bytes() for f in _files(folder)})
    assert contents[0] == contents[1]


def test_rows_from_before_the_opening_can_come_from_the_log(tmp_path: Path) -> None:
    last = _run(ShopPlan(tmp_path, 60, backfill=False))
    assert last.backfilled == 0
    assert {each["read_method"] for each in read_records(_files(tmp_path))} == {"mysql-cdc-binlog"}


def test_rate_is_kept_by_pauses_between_portions(tmp_path: Path) -> None:
    pauses: list[float] = []
    list(simulate_shop(ShopPlan(tmp_path, 3, rate=0.01), sleep=pauses.append))
    assert pauses
    assert all(pause > 50 for pause in pauses)


def test_simulation_without_an_end_goes_on(tmp_path: Path) -> None:
    plan = ShopPlan(tmp_path, None, rate=10)
    steps = simulate_shop(plan, sleep=lambda _: None)
    found = [next(steps).changes for _ in range(3)]
    assert found == sorted(found)
    assert 30 <= found[-1] < 60


def test_progress_is_reported(tmp_path: Path) -> None:
    reported: list[str] = []
    list(simulate_shop(ShopPlan(tmp_path, 1), report=reported.append))
    assert reported == ["Creating the shop's tables"]


def _as_json(tables: Tables) -> Tables:
    return {
        name: [{column: _json_value(value) for column, value in row.items()} for row in rows]
        for name, rows in tables.items()
    }


def _json_value(value: object) -> object:
    match value:
        case Decimal():
            return float(value)
        case datetime():
            return value.isoformat().removesuffix("+00:00") + "Z"
        case date():
            return value.isoformat()
    return value
