from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from headgate.engine.quarantine_table import QuarantineState
from headgate.errors import UsageError
from headgate.quarantine.filter import OffsetRange, QuarantineFilter

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
ROWS = pa.table(
    {
        "state": ["open", "open", "open", "replayed", "dropped"],
        "reason": ["null_value", "schema_unknown", "schema_unknown", "too_large", "it's"],
        "route": [None, "chess", "Chess!", "go", "a'b"],
        "_topic": ["games", "games", "games", "other", "it's"],
        "_partition": pa.array([0, 0, 1, 0, 0], pa.int32()),
        "_offset": [1, 2, 3, 4, 5],
        "_at": pa.array([NOON + timedelta(hours=n) for n in range(5)], pa.timestamp("us", "UTC")),
    }
)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> DeltaTable:
    path = str(tmp_path_factory.mktemp("quarantine"))
    write_deltalake(path, ROWS)
    return DeltaTable(path)


def offsets(table: DeltaTable, wanted: QuarantineFilter, *routes: str) -> list[int]:
    sql = f"SELECT _offset FROM stored WHERE {wanted.condition(routes)} ORDER BY _offset"
    found = QueryBuilder().register("stored", table).execute(sql)
    rows: list[int] = pa.RecordBatchReader.from_stream(found).read_all()["_offset"].to_pylist()
    return rows


ANY = QuarantineFilter(state=None)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (QuarantineFilter(), [1, 2, 3]),
        (ANY, [1, 2, 3, 4, 5]),
        (QuarantineFilter(state=QuarantineState.DROPPED), [5]),
        (QuarantineFilter(reason="schema_unknown"), [2, 3]),
        (QuarantineFilter(reason="it's", state=None), [5]),
        (QuarantineFilter(route="chess"), [2]),
        (QuarantineFilter(route="a'b", state=None), [5]),
        (QuarantineFilter(since=NOON + timedelta(hours=1)), [2, 3]),
        (QuarantineFilter(until=NOON + timedelta(hours=1)), [1]),
        (QuarantineFilter(since=datetime(2026, 11, 1, 14)), [3]),
        (QuarantineFilter(until=NOON.astimezone(timezone(timedelta(hours=5)))), []),
        (QuarantineFilter(offsets=OffsetRange("games", 0, 1, 3)), [1, 2]),
        (QuarantineFilter(offsets=OffsetRange("it's", 0, 5, 5), state=None), [5]),
        (QuarantineFilter(reason="schema_unknown", route="chess"), [2]),
    ],
)
def test_filter_selects_matching_rows(
    table: DeltaTable, wanted: QuarantineFilter, found: list[int]
) -> None:
    assert offsets(table, wanted) == found


def test_filter_by_table_selects_all_its_routes(table: DeltaTable) -> None:
    assert offsets(table, QuarantineFilter(route="silver_chess"), "chess", "Chess!") == [2, 3]


@given(st.text())
def test_text_is_escaped_in_sql(table: DeltaTable, text: str) -> None:
    wanted = QuarantineFilter(reason=text, route=text, state=None)
    assert offsets(table, wanted) == []


@pytest.mark.parametrize(
    ("text", "range_"),
    [
        ("games:0:12", OffsetRange("games", 0, 12, 12)),
        ("a.b:c:3:0-40", OffsetRange("a.b:c", 3, 0, 40)),
    ],
)
def test_offset_range_round_trips_through_text(text: str, range_: OffsetRange) -> None:
    assert OffsetRange.parse(text) == range_
    assert str(range_) == text


@pytest.mark.parametrize(
    "text", ["", "games", "games:0", ":0:1", "games:x:1", "games:0:9-3", "games:0:-1", "g:0:1-"]
)
def test_invalid_offset_range_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        OffsetRange.parse(text)
    assert caught.value.code == "bad-argument"


def test_filter_is_narrow_with_any_condition_besides_the_state() -> None:
    assert not QuarantineFilter().is_narrow
    assert not ANY.is_narrow
    assert QuarantineFilter(route="chess").is_narrow


def test_filter_is_recorded_as_text() -> None:
    wanted = QuarantineFilter(reason="too_large", offsets=OffsetRange("games", 0, 1, 3))
    assert wanted.as_record() == {
        "reason": "too_large",
        "offsets": "games:0:1-3",
        "state": "open",
    }
