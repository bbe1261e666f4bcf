"""Orders compare like tuples that are built here, independently of the code under test."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import datafusion
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.cdc.order.orders import lineages, order
from headgate.envelopes.datastream.changes import METADATA
from tests.cdc.order.metadata import Fields, backfill, metadata, mysql, oracle, postgresql

SERVERS = ("3e11fa47-71ca-11e1-9e33-c80aa9429562", "9f2b1c00-0000-11ee-8c99-0242ac120002")
RANKS = {"UPDATE-DELETE": 0, "INSERT": 1, "UPDATE": 2, "UPDATE-INSERT": 2, "DELETE": 3}

numbers = (
    st.integers(0, 1)
    | st.integers(2, 12)
    | st.integers(999_997, 1_000_002)
    | st.integers(2**63 - 2, 2**63 - 1)
    | st.integers(0, 2**63 - 1)
)
hexes = st.integers(0, 1) | st.integers(2, 17) | st.integers(0, 2**32 - 1)
change_types = st.sampled_from(sorted(RANKS))
uuids = st.text("0aF-", max_size=4)

Pair = tuple[tuple[Any, ...], Fields]


def _tied(place: tuple[Any, ...], fields: Fields, change_type: str, uuid: str) -> Pair:
    return (*place, RANKS[change_type], uuid), fields | {"change_type": change_type, "uuid": uuid}


def _logged(series: int, file: int, position: int, change_type: str, uuid: str) -> Pair:
    name = ("mysql-bin", "binlog")[series]
    return _tied(
        (1, series, file, position), mysql(f"{name}.{file:06}", position), change_type, uuid
    )


def _numbered(
    server: int, gtid: int, file: int, position: int, change_type: str, uuid: str
) -> Pair:
    fields = mysql(f"mysql-bin.{file}", position, gtid=f"{SERVERS[server]}:{gtid}")
    return _tied((1, server, gtid, file, position), fields, change_type, uuid)


def _in_domain(
    domain: int, gtid: int, file: int, position: int, change_type: str, uuid: str
) -> Pair:
    fields = mysql(f"mysql-bin.{file}", position, gtid=f"{domain}-{gtid % 3}-{gtid}")
    return _tied((1, domain, gtid, file, position), fields, change_type, uuid)


def _redone(
    scn: int, rs_id: tuple[int, int, int] | None, ssn: int | None, change_type: str, uuid: str
) -> Pair:
    text = None if rs_id is None else f" 0x{rs_id[0]:06x}.{rs_id[1]:08x}.{rs_id[2]:04x} "
    place = (1, 0, scn, rs_id or (-1,), -1 if ssn is None else ssn)
    return _tied(place, oracle(scn, text, ssn), change_type, uuid)


def _written(high: int, low: int, change_type: str, uuid: str) -> Pair:
    return _tied((1, 0, high * 2**32 + low), postgresql(f"{high:X}/{low:X}"), change_type, uuid)


def _read(micros: int, uuid: str) -> Pair:
    return (0, micros, uuid), backfill(micros, uuid=uuid)


firsts = st.integers(0, 1)
backfills = st.builds(_read, st.integers(0, 2 * 10**15), uuids)
by_log = st.builds(_logged, firsts, numbers, numbers, change_types, uuids)
by_gtid = st.builds(_numbered, firsts, numbers, numbers, numbers, change_types, uuids)
by_domain = st.builds(_in_domain, firsts, numbers, numbers, numbers, change_types, uuids)
by_scn = st.builds(
    _redone,
    numbers,
    st.none() | st.tuples(hexes, hexes, hexes),
    st.none() | numbers,
    change_types,
    uuids,
)
by_lsn = st.builds(_written, hexes, hexes, change_types, uuids)


def _assert_alike(pairs: list[Pair], known: list[str]) -> None:
    """Check that sorting by order sorts the tuples, and that equal orders have equal tuples."""
    orders = order(metadata([fields for _, fields in pairs]), known)
    assert orders.unknown == {}
    texts = orders.texts.to_pylist()
    by_text = sorted(
        zip(texts, (place for place, _ in pairs), strict=True), key=lambda pair: pair[0]
    )
    for (text, place), (next_text, next_place) in pairwise(by_text):
        assert (text < next_text) == (place < next_place)
        assert (text == next_text) == (place == next_place)


@given(st.lists(by_log | backfills, max_size=12))
@settings(deadline=None)
def test_mysql_changes_sort_by_log_file_number_and_position(pairs: list[Pair]) -> None:
    _assert_alike(pairs, ["log:mysql-bin", "log:binlog"])


@given(st.lists(by_gtid | backfills, max_size=12))
@settings(deadline=None)
def test_changes_with_gtids_sort_by_their_numbers(pairs: list[Pair]) -> None:
    _assert_alike(pairs, [f"gtid:{server}" for server in SERVERS])


@given(st.lists(by_domain | backfills, max_size=12))
@settings(deadline=None)
def test_mariadb_changes_sort_by_the_sequence_of_their_domain(pairs: list[Pair]) -> None:
    _assert_alike(pairs, ["gtid:0", "gtid:1"])


@given(st.lists(by_scn | backfills, max_size=12))
@settings(deadline=None)
def test_oracle_changes_sort_by_scn_rs_id_and_ssn(pairs: list[Pair]) -> None:
    _assert_alike(pairs, ["oracle"])


@given(st.lists(by_lsn | backfills, max_size=12))
@settings(deadline=None)
def test_postgresql_changes_sort_by_lsn(pairs: list[Pair]) -> None:
    _assert_alike(pairs, ["postgresql"])


@given(
    st.lists(by_log | by_gtid | by_scn | by_lsn | backfills, min_size=1, max_size=12), st.randoms()
)
@settings(deadline=None)
def test_order_of_a_change_does_not_depend_on_its_neighbours(
    pairs: list[Pair], random: Random
) -> None:
    known = ["log:mysql-bin", f"gtid:{SERVERS[1]}", "oracle", "postgresql"]
    together = metadata([fields for _, fields in pairs])
    texts, reasons = order(together, known).texts.to_pylist(), order(together, known).unknown
    rows = [random.randrange(len(pairs)) for _ in range(2 * len(pairs))]
    for shuffled in (together.take(rows), pa.concat_tables(together.slice(row, 1) for row in rows)):
        again = order(shuffled, known)
        assert again.texts.to_pylist() == [texts[row] for row in rows]
        assert again.unknown == {
            place: reasons[row] for place, row in enumerate(rows) if row in reasons
        }


def test_roll_over_to_seven_digits_keeps_the_order() -> None:
    files = ["mysql-bin.999999", "mysql-bin.1000000"]
    orders = order(metadata([mysql(file, 4) for file in files]), ["log:mysql-bin"])
    first, second = orders.texts.to_pylist()
    assert first == "1.0000.00000000000000999999.00000000000000000004.2.u"
    assert first < second


def test_key_moved_within_one_statement_exists_afterwards() -> None:
    change_types = ["DELETE", "UPDATE-INSERT", "INSERT", "UPDATE-DELETE"]
    fields = metadata(
        [mysql("mysql-bin.1", 4, change_type=change_type) for change_type in change_types]
    )
    by_order = pc.sort_indices(order(fields, ["log:mysql-bin"]).texts).to_pylist()
    assert [change_types[row] for row in by_order] == [
        "UPDATE-DELETE",
        "INSERT",
        "UPDATE-INSERT",
        "DELETE",
    ]


def test_change_without_rs_id_or_ssn_sorts_first_in_its_scn() -> None:
    rising = [
        oracle(1, "0x9.9.9", 9),
        oracle(2, None, None),
        oracle(2, None, 0),
        oracle(2, "0x0.0.0", None),
        oracle(2, "0x0.0.0", 0),
    ]
    texts = order(metadata(rising), ["oracle"]).texts.to_pylist()
    assert texts == sorted(set(texts))


@pytest.mark.parametrize(
    ("read_method", "phase"),
    [
        ("mysql-backfill-fulldump", "0"),
        ("oracle-backfill", "0"),
        ("oracle_dump", "0"),
        ("postgresql-backfill", "0"),
        ("mysql-cdc-binlog", "1"),
        ("MariaDB-cdc", "1"),
        ("oracle-cdc-logminer", "1"),
        ("oracle-supplementation", "1"),
        ("postgresql-cdc", "1"),
        ("postgres_cdc_wal", "1"),
    ],
)
def test_read_method_distinguishes_backfills_from_changes(read_method: str, phase: str) -> None:
    fields = mysql("mysql-bin.1", 4, scn=5, lsn="0/1", source_timestamp=1, read_method=read_method)
    [text] = order(metadata([fields]), ["log:mysql-bin", "oracle", "postgresql"]).texts.to_pylist()
    assert text.startswith(f"{phase}.")


def test_sort_keys_replace_missing_columns() -> None:
    columns = [
        mysql("mysql-bin.000014", 4711),
        oracle(123456, " 0x000135.0001e5e4.0010 ", 7),
        postgresql("16/CB002DB0"),
        backfill(1_700_000_000_123_000),
    ]
    sort_keys = [
        mysql("", None, sort_keys=["1700000000123", "mysql-bin.000014", "4711"]),
        oracle(None, None, None, sort_keys=["1", "123456", " 0x000135.0001e5e4.0010 ", "7"]),
        postgresql(None, sort_keys=["1700000000123", "16/CB002DB0"]),
        backfill(None, sort_keys=["1700000000123", "", "0"]),
    ]
    known = ["log:mysql-bin", "oracle", "postgresql"]
    assert order(metadata(sort_keys), known) == order(metadata(columns), known)
    assert order(metadata(columns), known).unknown == {}


def test_missing_columns_count_as_null() -> None:
    fields = pa.record_batch({"_read_method": ["mysql-cdc-binlog"], "_change_type": ["INSERT"]})
    fields = fields.append_column("_sort_keys", pa.array([["1", "mysql-bin.000002", "5"]]))
    assert order(fields, ["log:mysql-bin"]).texts.to_pylist() == [
        "1.0000.00000000000000000002.00000000000000000005.1."
    ]


@pytest.mark.parametrize(
    "change_type",
    [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())],
    ids=str,
)
def test_strings_may_have_any_layout(change_type: pa.DataType) -> None:
    fields = metadata([mysql("mysql-bin.1", 4), backfill(1), mysql("mysql-bin.2", 4, gtid="0-1-2")])
    forms = [
        pa.field(name.name, change_type if name.type == pa.string() else name.type)
        for name in METADATA
    ]
    known = ["log:mysql-bin", "gtid:0"]
    assert order(fields.cast(pa.schema(forms)), known) == order(fields, known)


def test_lineage_is_null_if_the_order_is_unknown() -> None:
    fields = [
        mysql("mysql-bin.000014", 4711),
        mysql("mysql-bin.000014", None),
        mysql("host-bin.log.000001", 4, gtid=f"{SERVERS[0].upper()}:23"),
        mysql("host-bin.log.000001", 4),
        mysql("host-bin.000001", 4, gtid="0-1-270"),
        backfill(1),
        oracle(5, None, None),
        postgresql("0/1"),
        {"read_method": "salesforce-cdc"},
    ]
    assert lineages(metadata(fields)).to_pylist() == [
        "log:mysql-bin",
        None,
        f"gtid:{SERVERS[0]}",
        "log:host-bin.log",
        "gtid:0",
        None,
        "oracle",
        "postgresql",
        None,
    ]


def test_no_changes_have_no_orders() -> None:
    for nothing in (metadata([]), metadata([mysql("mysql-bin.1", 4)]).to_batches()[0].slice(1)):
        assert order(nothing, []).texts.to_pylist() == []
        assert lineages(nothing).to_pylist() == []


def test_engine_sorts_orders_as_python_does() -> None:
    random = Random(7)
    fields = [
        mysql(f"mysql-bin.{random.randrange(2_000_000)}", random.randrange(9), uuid=uuid)
        for uuid in ("a", "B", "-", "0", "_", "") * 20
    ] + [backfill(random.randrange(9), uuid="0") for _ in range(9)]
    texts = order(metadata(fields), ["log:mysql-bin"]).texts
    engine = datafusion.SessionContext()
    engine.register_record_batches("changes", [[pa.record_batch({"place": texts})]])
    rows = engine.sql("SELECT place FROM changes ORDER BY place").to_pydict()
    assert rows["place"] == sorted(texts.to_pylist())
    assert texts.take(pc.sort_indices(texts)).to_pylist() == sorted(texts.to_pylist())
