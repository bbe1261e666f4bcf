"""A rewound table equals the database as of every timestamp and every position."""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from headgate.cdc.as_of import Cutoff, key_of_log, rows_as_of
from headgate.cdc.change_log import ChangeLog
from headgate.cdc.key import TableKey
from headgate.cdc.rewind import rewind
from headgate.config import Datastream
from headgate.errors import LandingError, UsageError
from tests.cdc.change_lake import ChangeLake
from tests.cdc.changes import Case, Change, Rows, case
from tests.cdc.test_merged_is_the_database import land_all

SEEDS = range(8)
KEY = TableKey(("case_number", "id"))
LOG = "log_theatre_seats"
Place = tuple[int, int, int]


def timestamp(micros: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)


def place(change: Change, lineages: list[str]) -> Place:
    series, _, file = change.log_file.rpartition(".")
    return lineages.index(f"log:{series}"), int(file), change.log_position


def by_case(rows: pa.Table) -> dict[int, Rows]:
    found: dict[int, Rows] = {}
    for row in rows.select(["case_number", "id", "name", "amount"]).to_pylist():
        rows_of_case = found.setdefault(row["case_number"], {})
        assert row["id"] not in rows_of_case
        rows_of_case[row["id"]] = {"name": row["name"], "amount": row["amount"]}
    return found


def logged_rows(case_: Case, changes: int) -> Rows:
    """Return the rows after a number of changes, without rows that none of them mentions."""
    known = {change.key for change in case_.changes[:changes]}
    return {key: row for key, row in case_.states[changes].items() if key in known}


@pytest.fixture(scope="module", params=[False, True], ids=["one server", "fail-over"])
def landed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[ChangeLake, list[Case]]:
    cases = [case(seed, request.param) for seed in SEEDS]
    envelope = Datastream(lineages=cases[0].lineages)
    lake = ChangeLake(tmp_path_factory.mktemp("as_of"), {"envelope": envelope})
    land_all(lake, cases)
    return lake, cases


@pytest.fixture
def log(landed: tuple[ChangeLake, list[Case]]) -> ChangeLog:
    opened = ChangeLog.open(landed[0].pipeline.lake, LOG)
    assert opened is not None
    return opened


def test_rows_as_of_every_timestamp_are_those_of_the_database(
    landed: tuple[ChangeLake, list[Case]], log: ChangeLog
) -> None:
    cases = landed[1]
    clocks = [[change.micros for change in case_.changes] for case_ in cases]
    for micros in sorted({micros for clock in clocks for micros in (clock[0] - 1, *clock)}):
        found = by_case(rows_as_of(log, KEY, Cutoff(timestamp=timestamp(micros))))
        for number, (case_, clock) in enumerate(zip(cases, clocks, strict=True)):
            assert found.get(number, {}) == logged_rows(case_, bisect_right(clock, micros))


def test_rows_as_of_every_position_are_those_of_the_database(
    landed: tuple[ChangeLake, list[Case]], log: ChangeLog
) -> None:
    cases = landed[1]
    texts = {
        place(change, case_.lineages): f"{change.log_file}:{change.log_position}"
        for case_ in cases
        for change in case_.changes
        if not change.is_backfill
    }
    for position, text in sorted(texts.items()):
        cutoff = Cutoff.parse(text, tuple(cases[0].lineages))
        found = by_case(rows_as_of(log, KEY, cutoff))
        for number, case_ in enumerate(cases):
            check_position(case_, position, found.get(number, {}))


def check_position(case_: Case, position: Place, found: Rows) -> None:
    made = [
        at + 1
        for at, change in enumerate(case_.changes)
        if not change.is_backfill and place(change, case_.lineages) <= position
    ]
    changes = max(made, default=0)
    then = case_.states[changes]
    assert found.items() <= then.items()
    later = [change for change in case_.changes[changes:] if not change.is_backfill]
    for change in case_.changes[:changes]:
        # The clock cannot tell whether a backfill read a row before a change of the same tick.
        unsure = change.is_backfill and any(
            change.key == other.key and change.micros == other.micros for other in later
        )
        assert unsure or (change.key in found) == (change.key in then)


def test_rewind_creates_a_table(landed: tuple[ChangeLake, list[Case]]) -> None:
    lake, cases = landed
    micros = max(change.micros for case_ in cases for change in case_.changes)
    text = timestamp(micros).isoformat()
    made = rewind(lake.pipeline, "theatre.seats", text, f"at_the_end_{len(cases[0].lineages)}")
    table = DeltaTable(str(lake.path / made.table))
    rows = table.to_pyarrow_table()
    merged = DeltaTable(str(lake.path / "theatre_seats")).to_pyarrow_table()
    order = [("case_number", "ascending"), ("id", "ascending")]
    assert rows.sort_by(order) == merged.sort_by(order)
    assert TableKey.from_schema(pa.schema(table.schema())) == KEY
    assert (made.rows, made.engine, made.newest) == (len(merged), "delta-rs", None)
    assert str(table.metadata().description).startswith("theatre.seats as of ")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> ChangeLake:
    lake = ChangeLake(tmp_path_factory.mktemp("small"))
    land_all(lake, [case(1)])
    return lake


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("2023-11-14 22:13", "theatre_seats_at_20231114_221300"),
        ("2023-11-14T23:13:20.25+01:00", "theatre_seats_at_20231114_221320_250000"),
        ("2023-11-15", "theatre_seats_at_20231115_000000"),
        (" mysql-bin.000998:35 ", "theatre_seats_at_mysql_bin_000998_35"),
    ],
)
def test_rewound_table_is_named_after_its_cutoff(small: ChangeLake, text: str, name: str) -> None:
    assert rewind(small.pipeline, "theatre_seats", text).table == name


def test_rewind_never_overwrites(small: ChangeLake) -> None:
    made = rewind(small.pipeline, LOG, "2024-01-01", "once")
    before = DeltaTable(str(small.path / "once")).version()
    for name in ("once", "theatre_seats", LOG, "ledger", "_files"):
        with pytest.raises(UsageError) as raised:
            rewind(small.pipeline, "theatre.seats", "2020-01-01", name)
        assert raised.value.code == ("bad-argument" if name == "_files" else "already-exists")
    assert DeltaTable(str(small.path / "once")).version() == before
    assert made.newest is not None


def test_table_as_of_before_the_first_change_is_empty(small: ChangeLake) -> None:
    made = rewind(small.pipeline, "theatre_seats", "2020-01-01 00:00")
    table = DeltaTable(str(small.path / made.table))
    merged = DeltaTable(str(small.path / "theatre_seats"))
    assert (made.rows, made.key) == (0, KEY.columns)
    assert made.begins is not None
    assert pa.schema(table.schema()) == pa.schema(merged.schema())


@pytest.mark.parametrize(
    ("table", "when", "into", "code"),
    [
        ("theatre_seat", "2024-01-01", None, "table-unknown"),
        ("theatre_seats", "yesterday", None, "bad-argument"),
        ("theatre_seats", "other-bin.000001:4", None, "bad-argument"),
        ("theatre_seats", "2024-01-01", "../elsewhere", "bad-argument"),
    ],
)
def test_rewind_of_an_invalid_request_fails_with_a_hint(
    small: ChangeLake, table: str, when: str, into: str | None, code: str
) -> None:
    with pytest.raises((UsageError, LandingError)) as raised:
        rewind(small.pipeline, table, when, into)
    assert raised.value.code == code
    assert raised.value.hint


def oracle_log(folder: Path, rows: list[dict[str, Any]]) -> ChangeLog:
    """Write a log from `at, id, row, gone`; `at` is both the order and the second."""
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("_order", pa.string()),
            ("_is_deleted", pa.bool_()),
            ("_row_id", pa.string()),
            ("_primary_keys", pa.list_(pa.string())),
            ("_source_timestamp", pa.timestamp("us", "UTC")),
        ]
    )
    changes = [
        {
            "id": row["id"],
            "_order": f"1.{row['at']}",
            "_is_deleted": row.get("gone", False),
            "_row_id": row["row"],
            "_primary_keys": ["id"] if row["id"] else None,
            "_source_timestamp": timestamp(row["at"] * 1_000_000),
        }
        for row in rows
    ]
    write_deltalake(str(folder / "log"), pa.Table.from_pylist(changes, schema))
    opened = ChangeLog.open(str(folder), "log")
    assert opened is not None
    return opened


@pytest.mark.parametrize(("at", "ids"), [(1, [1]), (2, [1, 2]), (3, [2]), (4, [2, 3]), (0, [])])
def test_deletion_by_row_id_counts_from_its_position_on(
    tmp_path: Path, at: int, ids: list[int]
) -> None:
    log = oracle_log(
        tmp_path,
        [
            {"at": 1, "id": 1, "row": "AAA"},
            {"at": 2, "id": 2, "row": "AAB"},
            {"at": 3, "id": None, "row": "AAA", "gone": True},
            {"at": 4, "id": 3, "row": "AAA"},
        ],
    )
    for cutoff in (Cutoff(timestamp=timestamp(at * 1_000_000)), Cutoff(order=f"1.{at}~")):
        key = key_of_log(log, None, cutoff)
        assert key == TableKey(("id",))
        assert sorted(rows_as_of(log, key, cutoff)["id"].to_pylist()) == ids


def test_key_is_that_of_the_cutoff(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("sku", pa.string()),
            ("_order", pa.string()),
            ("_is_deleted", pa.bool_()),
            ("_primary_keys", pa.list_(pa.string())),
        ]
    )
    for at, names in enumerate((["id"], ["id", "sku"])):
        row = {"id": 1, "sku": f"s{at}", "_order": f"1.{at}", "_is_deleted": False}
        rows = pa.Table.from_pylist([{**row, "_primary_keys": names}], schema)
        write_deltalake(str(tmp_path / "log"), rows, mode="append")
    whole, before = (ChangeLog.open(str(tmp_path), "log", version) for version in (None, 0))
    assert whole is not None
    assert before is not None
    assert key_of_log(whole, None, Cutoff()).columns == ("id", "sku")
    assert key_of_log(whole, None, Cutoff(order="1.0~")).columns == ("id",)
    assert key_of_log(before, None, Cutoff()).columns == ("id",)
    assert key_of_log(whole, ("SKU",), Cutoff()).columns == ("sku",)
